from __future__ import annotations

import dataclasses
import signal

import pytest
from tests.unit.ranks.scene import history, look, moment, ranks

from holdfast.contract.page import END_SIGNAL, Ending
from holdfast_sidecar.ranks.checks import find_crashes
from holdfast_sidecar.ranks.observation import RankLook
from holdfast_sidecar.records.findings import Finding, Kind


def gone(at_s: float, code: int | None = -9, ending: Ending = Ending.RUNNING) -> RankLook:
    return dataclasses.replace(look(at_s, is_gone=True, ending=ending), exit_code=code)


def dying(at_s: float, code: int = -9) -> RankLook:
    return dataclasses.replace(look(at_s), is_dying=True, exit_code=code)


def found(*looks: RankLook) -> list[Finding]:
    return list(find_crashes(ranks(history(*looks)), moment(looks[-1].at_s)))


def test_a_process_that_went_without_a_word_has_crashed() -> None:
    (finding,) = found(look(1.0), gone(2.0), gone(3.0))
    assert (finding.kind, finding.ranks, finding.acts) == (Kind.CRASH, [0], True)
    assert finding.since_unix_s == 1_000_002.0
    assert finding.evidence == ["process 1000 was ended by SIGKILL in forward, step 10"]


def test_a_process_whose_memory_is_still_being_freed_has_crashed_already() -> None:
    (finding,) = found(look(1.0), dying(2.0, -signal.SIGSEGV))
    assert finding.acts
    assert "was ended by SIGSEGV" in finding.evidence[0]


def test_how_it_ended_is_remembered_once_nobody_can_tell_any_more() -> None:
    (finding,) = found(look(1.0), dying(2.0, 3), gone(3.0, None))
    assert finding.acts
    assert finding.since_unix_s == 1_000_002.0
    assert "exited with code 3" in finding.evidence[0]


def test_its_last_words_are_evidence() -> None:
    words = {"type": "ValueError", "message": "no such token"}
    said = dataclasses.replace(gone(2.0, 1, Ending.EXCEPTION), last_words=words)
    (finding,) = found(look(1.0), said)
    assert "last words: ValueError: no such token" in finding.evidence


def test_a_rank_that_finished_has_not_crashed() -> None:
    assert found(look(1.0), gone(2.0, 0, Ending.FINISHED)) == []


def test_a_rank_that_aborts_after_it_finished_has_not_crashed() -> None:
    assert found(look(1.0), gone(2.0, -signal.SIGABRT, Ending.FINISHED)) == []


def test_a_rank_that_left_by_code_0_without_a_word_has_not_crashed() -> None:
    assert found(look(1.0), dying(2.0, 0), gone(3.0, None)) == []


@pytest.mark.parametrize(
    "code", [-signal.SIGTERM, -signal.SIGINT, -END_SIGNAL, 128 + signal.SIGTERM]
)
def test_who_was_ended_as_launchers_end_ranks_is_told_and_not_acted_on(code: int) -> None:
    early = found(look(1.0), gone(2.0, code), gone(6.9, code))
    assert early == [], "the word of it may be on its way"
    (finding,) = found(look(1.0), gone(2.0, code), gone(7.0, code))
    assert not finding.acts


@pytest.mark.parametrize("code", [1, -signal.SIGKILL])
def test_who_was_interrupted_and_did_not_end_of_it_is_taken_for_no_crash(code: int) -> None:
    words = {"type": "KeyboardInterrupt", "message": ""}
    said = dataclasses.replace(gone(2.0, code, Ending.EXCEPTION), last_words=words)
    assert found(look(1.0), said) == []
    (finding,) = found(look(1.0), said, dataclasses.replace(said, at_s=7.0))
    assert not finding.acts


def test_an_end_of_which_nobody_knows_how_it_was_is_told_and_not_acted_on() -> None:
    (finding,) = found(look(1.0), gone(2.0, None))
    assert not finding.acts
    assert "is gone" in finding.evidence[0]


def test_a_page_whose_owner_was_gone_at_first_sight_is_left_over_from_before() -> None:
    assert found(gone(1.0), gone(2.0)) == []


def with_oom(one: RankLook, kills: int | None, is_victim: bool = False) -> RankLook:
    return dataclasses.replace(one, oom_kills=kills, is_oom_victim=is_victim)


def test_the_oom_killer_is_told_from_kill_9_by_the_count_of_the_cgroup() -> None:
    (killed,) = found(with_oom(look(1.0), 4), with_oom(gone(2.0), 4))
    assert "was ended by SIGKILL" in killed.evidence[0]
    (starved,) = found(with_oom(look(1.0), 4), with_oom(gone(2.0), 5))
    assert "OOM killer, by the count of its memory cgroup" in starved.evidence[0]


def test_the_count_may_have_grown_just_before_the_end_was_seen() -> None:
    looks = [with_oom(look(1.0), 0), with_oom(look(1.5), 1), with_oom(gone(2.0), 1)]
    (finding,) = found(*looks)
    assert "OOM killer, by the count" in finding.evidence[0]


def test_an_oom_kill_of_long_ago_is_not_the_reason() -> None:
    looks = [with_oom(look(1.0), 0), with_oom(look(1.5), 1), with_oom(gone(30.0), 1)]
    (finding,) = found(*looks)
    assert "OOM" not in finding.evidence[0]


def test_the_kernels_log_is_believed_where_nobody_counts() -> None:
    (finding,) = found(with_oom(look(1.0), None), with_oom(gone(2.0), None, is_victim=True))
    assert "OOM killer, as its log says" in finding.evidence[0]


def test_a_rank_that_fails_after_its_worker_was_taken_is_told_so() -> None:
    (finding,) = found(with_oom(look(1.0), 0), with_oom(look(2.0), 1), with_oom(gone(5.0, 1), 1))
    assert "exited with code 1, 3.0 s after the OOM killer struck" in finding.evidence[0]
