"""From when on the time is counted that a fault cost."""

from __future__ import annotations

import dataclasses

import pytest

from holdfast_sidecar.policy.modes import of_crash, of_hang, of_lost_node, of_numbers
from holdfast_sidecar.records.findings import Finding, Kind
from holdfast_sidecar.records.reports import Exit, RankReport

DIED, STEPPED, STOOD = 100.0, 40.0, 60.0
WAITED = "RuntimeError: Timed out waiting 60000ms for recv operation to complete"
LOST_A_PEER = "RuntimeError: gloo: Connection closed by peer"


def exited(message: str = "", stepped: float = STEPPED) -> Exit:
    return Exit(0, 0, 1, 1, DIED, 0, message, stepped_unix_s=stepped)


def rank(step: int = 60, **changes: object) -> RankReport:
    report = RankReport(0, 0, 1, step, "forward", 0.1, 0.5, 0.1)
    return dataclasses.replace(report, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("exit_", "report", "began"),
    [
        (exited("ValueError: bad sample 7"), rank(), DIED),
        (exited("ValueError: bad sample 7"), None, DIED),
        (exited(LOST_A_PEER), rank(), DIED),
        (exited(WAITED), rank(), STEPPED),
        (exited(WAITED), None, STEPPED),
        (exited(WAITED, stepped=0.0), rank(), DIED),
        (exited(), rank(stood_since_unix_s=STOOD), STOOD),
        (exited(WAITED), rank(stood_since_unix_s=STOOD), STOOD),
        (exited(WAITED, stepped=DIED + 1), rank(), DIED),
    ],
    ids=[
        "it died at work",
        "no sidecar saw it",
        "it noticed the loss of a peer at once",
        "it gave up waiting",
        "it gave up waiting, and no sidecar saw it",
        "it gave up waiting and left no page",
        "it was killed when it had hung for a while",
        "its sidecar knows how long it waited",
        "a page that was written later than the end was noticed",
    ],
)
def test_a_crash_began_with_the_death_unless_the_job_had_stood_still_before(
    exit_: Exit, report: RankReport | None, began: float
) -> None:
    assert of_crash(exit_, report) == began


def silent(rank: int, since: float, kind: Kind = Kind.STALL) -> Finding:
    return Finding(kind, "a", since, 0.6, [rank])


def test_a_hang_began_with_the_last_progress_of_the_culprit_not_with_its_victims() -> None:
    found = [silent(0, 50.0), silent(1, 70.0), silent(1, 10.0, Kind.STRAGGLER)]
    assert of_hang([1], found, otherwise=50.0) == 70.0
    assert of_hang([0, 1], found, otherwise=99.0) == 50.0
    assert of_hang([2], found, otherwise=99.0) == 99.0


def test_a_lost_node_is_lost_since_its_last_heartbeat() -> None:
    assert of_lost_node(1.5, 100.0) == 98.5


def test_numbers_went_wrong_when_their_first_step_ended() -> None:
    assert of_numbers(50, [rank(60), rank(59)], 100.0) == 95.0
    assert of_numbers(60, [rank(60)], 100.0) == 100.0
    assert of_numbers(50, [rank(60, step_s=0.0)], 100.0) == 100.0
    assert of_numbers(50, [], 100.0) == 100.0
