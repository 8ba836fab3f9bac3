"""The thread that keeps evidence, seen from the loop that must not wait for it."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from holdfast_sidecar.config.paths import Paths
from holdfast_sidecar.config.settings import EvidenceSettings
from holdfast_sidecar.incidents.collect import PAUSES_S, EvidenceKeeping, EvidenceRequest
from holdfast_sidecar.incidents.rank_facts import EvidenceRecord, write_kept
from holdfast_sidecar.ranks.ending import ActionRunner
from holdfast_sidecar.records.plan import Plan

HANG = Plan(0, 1, "evidence", incident="i1", cause="hang", culprit_ranks=[1])
NEXT = Plan(1, 1, "evidence", incident="i2", cause="hang", culprit_ranks=[0])


def write(request: EvidenceRequest) -> None:
    request.destination.mkdir(parents=True)
    write_kept(
        request.destination,
        EvidenceRecord(request.incident, [0], [], places={"0": "in work (x:1)"}),
    )


@pytest.fixture
def keeping(tmp_path: Path) -> EvidenceKeeping:
    return EvidenceKeeping(Paths(tmp_path / "shm", tmp_path / "state"), ActionRunner())


def test_what_is_on_disk_is_told_with_where_ranks_stood(keeping: EvidenceKeeping) -> None:
    def keep(request: EvidenceRequest, answer_s: float) -> bool:
        write(request)
        return True

    keeping.keep_now = keep
    keeping.keep(HANG, [], 0.0)
    assert keeping.kept.incident == "i1"
    assert keeping.kept.where_ranks_stood == {"0": "in work (x:1)"}
    assert keeping.runner.done["keep_evidence"] == 1
    keeping.keep(HANG, [], 0.0)
    assert keeping.runner.done["keep_evidence"] == 1


def test_what_an_earlier_sidecar_kept_counts(keeping: EvidenceKeeping) -> None:
    write(EvidenceRequest("i1", (), Path("/nowhere"), keeping.places.incident("i1")))
    keeping.keep(HANG, [], 0.0)
    assert keeping.kept.incident == "i1"


def test_a_file_system_that_hangs_holds_nobody_but_its_own_incident(
    keeping: EvidenceKeeping,
) -> None:
    release, begun = threading.Event(), []

    def keep(request: EvidenceRequest, answer_s: float) -> bool:
        begun.append(request.incident)
        release.wait(60)
        write(request)
        return True

    keeping.keep_now = keep
    keeping.keep(HANG, [], 0.0)
    keeping.keep(HANG, [], 0.0)
    keeping.keep(NEXT, [], 0.0)
    assert begun == ["i1"]
    assert keeping.kept.incident == ""
    release.set()
    assert keeping._thread is not None
    keeping._thread.join()
    assert keeping.kept.incident == "i1"
    keeping.keep(NEXT, [], 0.0)
    assert keeping.kept.incident == "i2"


def test_what_fails_is_counted_and_tried_again(keeping: EvidenceKeeping) -> None:
    attempts = []

    def keep(request: EvidenceRequest, answer_s: float) -> bool:
        attempts.append(request.incident)
        if len(attempts) == 1:
            raise OSError(28, "No space left on device")
        write(request)
        return True

    keeping.keep_now = keep
    keeping.keep(HANG, [], 0.0)
    assert keeping.kept.incident == ""
    assert keeping.runner.failed["keep_evidence"] == 1
    keeping.keep(HANG, [], 0.0)
    assert keeping.kept.incident == "i1"


def test_ranks_that_are_being_ended_are_asked_only_for_what_comes_at_once(
    keeping: EvidenceKeeping,
) -> None:
    keeping.settings = EvidenceSettings(native_s=3.0)
    asked: list[tuple[float, bool, float]] = []

    def keep(request: EvidenceRequest, answer_s: float) -> bool:
        asked.append((answer_s, request.spies, request.native_s))
        return False

    keeping.keep_now = keep
    keeping.keep(HANG, [], 0.0)
    keeping.keep(Plan(0, 1, "ended", incident="i3", cause="crash"), [], 0.0)
    (in_time, spied, native_s), (dying, spied_dying, _) = asked
    assert dying < in_time
    assert (spied, spied_dying, native_s) == (True, False, 3.0)


def test_ranks_are_asked_a_few_times_only_where_writing_fails_for_good(
    keeping: EvidenceKeeping,
) -> None:
    attempts: list[float] = []

    def keep(request: EvidenceRequest, answer_s: float) -> bool:
        attempts.append(tick / 10)
        raise OSError(5, "Input/output error")

    keeping.keep_now = keep
    for tick in range(6000):
        keeping.keep(HANG, [], tick / 10)
        assert keeping._thread is not None
        keeping._thread.join()
    assert len(attempts) == 1 + len(PAUSES_S)
    keeping.keep(NEXT, [], 600.0)
    assert len(attempts) == 2 + len(PAUSES_S)


def test_it_is_over_at_once_where_the_disk_takes_nothing_and_after_a_while_elsewhere(
    keeping: EvidenceKeeping,
) -> None:
    numbers = [5, 28]

    def keep(request: EvidenceRequest, answer_s: float) -> bool:
        raise OSError(numbers.pop(0), "no")

    keeping.keep_now = keep
    assert not keeping.tries.are_over("i1", 10.0, 99.0)
    keeping.keep(HANG, [], 0.0)
    assert not keeping.tries.are_over("i1", 10.0, 9.9)
    assert keeping.tries.are_over("i1", 10.0, 10.1)
    keeping.keep(NEXT, [], 20.0)
    assert keeping.tries.are_over("i2", 10.0, 20.0)
    assert not keeping.tries.are_over("i1", 10.0, 99.0)
