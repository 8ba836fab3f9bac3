"""Which of two sidecars of one name speaks for the node."""

from __future__ import annotations

import dataclasses

import pytest

from holdfast_sidecar.policy.cluster import Heartbeats
from holdfast_sidecar.policy.election import (
    HANDOVER_S,
    STOPPED_S,
    DuplicateSidecar,
    DuplicateSidecarWatch,
    refusal,
    watch_launcher,
)
from holdfast_sidecar.records.reports import AgentReport, NodeReport

TIMEOUT_S = 1.1
LOOK_S = 0.1
HEARTBEAT_S = 0.3
OTHER = NodeReport("a", "i", 1, -1, 0, -1, True, pid=77, host="vm", boot="b")


def judge(beats: list[int], other: NodeReport = OTHER) -> list[DuplicateSidecar]:
    """One look a tenth of a second, at these beats."""
    watch = DuplicateSidecarWatch(Heartbeats(counted_s=0.6, late_after_s=TIMEOUT_S), TIMEOUT_S)
    answers = []
    for look, beat in enumerate(beats):
        now = look * LOOK_S
        seen = dataclasses.replace(other, beat=beat)
        answers.append(watch.judge(seen, "server", now, now))
    return answers


def first(answers: list[DuplicateSidecar], what: DuplicateSidecar) -> float:
    return answers.index(what) * LOOK_S


def test_one_that_never_moves_is_gone_after_the_time_of_a_lost_node() -> None:
    answers = judge([5] * 20)
    assert first(answers, DuplicateSidecar.GONE) == pytest.approx(TIMEOUT_S, abs=LOOK_S)
    assert DuplicateSidecar.STAYS not in answers


def test_one_that_lives_stays_after_the_time_of_a_handover() -> None:
    answers = judge(list(range(70)))
    assert first(answers, DuplicateSidecar.STAYS) == pytest.approx(HANDOVER_S, abs=2 * LOOK_S)
    assert DuplicateSidecar.GONE not in answers


def test_one_that_leaves_meanwhile_is_waited_for() -> None:
    answers = judge([*range(10), *[9] * 35])
    assert first(answers, DuplicateSidecar.GONE) == pytest.approx(0.9 + STOPPED_S, abs=2 * LOOK_S)
    assert DuplicateSidecar.STAYS not in answers


def test_one_that_stands_still_for_two_seconds_was_kept_from_its_turn() -> None:
    answers = judge([*range(10), *[9] * 20, *range(10, 50)])
    assert DuplicateSidecar.GONE not in answers
    assert answers[-1] is DuplicateSidecar.STAYS


def test_one_that_outlives_its_launcher_gives_way_at_once() -> None:
    orphan = dataclasses.replace(OTHER, launcher_pid=9, launcher_alive=False)
    assert judge([1], orphan) == [DuplicateSidecar.GONE]


@pytest.mark.parametrize(
    ("boot", "where"), [("b", "on this machine,"), ("c", "on another machine that is called 'vm',")]
)
def test_the_refusal_says_who_is_there_and_what_to_do(boot: str, where: str) -> None:
    line = refusal(OTHER, "llm", boot)
    assert where in line
    assert "node 'a' of job 'llm'" in line
    assert "pid 77" in line
    assert "--node" in line
    assert "\n" not in line


def judge_launcher(beats: list[int], state: str = "running") -> list[DuplicateSidecar]:
    watch = watch_launcher(HEARTBEAT_S)
    other = AgentReport("a", "i", state, 0, 0, 1, "", 1, 1)
    seen = [dataclasses.replace(other, beat=beat) for beat in beats]
    return [watch.judge(one, look * LOOK_S, look * LOOK_S) for look, one in enumerate(seen)]


def test_a_launcher_elsewhere_that_beats_keeps_its_name() -> None:
    answers = judge_launcher([look // 3 for look in range(100)])
    assert DuplicateSidecar.GONE not in answers
    assert first(answers, DuplicateSidecar.STAYS) == pytest.approx(HANDOVER_S, abs=3 * LOOK_S)


def test_a_launcher_that_was_killed_gives_way_once_it_stood_still() -> None:
    answers = judge_launcher([5] * 100)
    assert DuplicateSidecar.STAYS not in answers
    assert first(answers, DuplicateSidecar.GONE) == pytest.approx(STOPPED_S, abs=LOOK_S)


def test_a_launcher_that_has_left_gives_way_at_once() -> None:
    assert judge_launcher([5], state="left") == [DuplicateSidecar.GONE]


LAUNCHER = AgentReport("a", "i", "running", 0, 0, 1, "", 1, 1)


@pytest.mark.parametrize("away_s", [1.0, STOPPED_S, STOPPED_S + 0.1, 60.0])
def test_a_launcher_that_could_not_beat_while_the_store_was_away_is_not_gone(away_s: float) -> None:
    watch = watch_launcher(HEARTBEAT_S)
    times = (0.0, 0.3, 0.3 + away_s, 0.6 + away_s)
    assert {watch.judge(LAUNCHER, now, now) for now in times} == {DuplicateSidecar.UNDECIDED}


def test_a_store_that_answers_late_makes_no_launcher_look_dead() -> None:
    watch = watch_launcher(HEARTBEAT_S)
    watch.judge(LAUNCHER, 0.0, 0.0)
    assert watch.judge(LAUNCHER, 0.3, 0.3 + STOPPED_S) is DuplicateSidecar.UNDECIDED


def test_a_launcher_that_died_while_the_store_was_away_gives_way_after_its_return() -> None:
    watch = watch_launcher(HEARTBEAT_S)
    watch.judge(LAUNCHER, 0.0, 0.0)
    looks = [60.0 + look * HEARTBEAT_S for look in range(12)]
    answers = [watch.judge(LAUNCHER, now, now) for now in looks]
    gone_after_s = looks[answers.index(DuplicateSidecar.GONE)] - looks[0]
    assert gone_after_s == pytest.approx(STOPPED_S, abs=HEARTBEAT_S)


def test_a_launcher_whose_heartbeats_are_slow_is_given_several_of_them() -> None:
    watch = watch_launcher(2.0)
    beats = [0, 1, 2, 2, 3, 4]  # one was late
    seen = [dataclasses.replace(LAUNCHER, beat=beat) for beat in beats]
    answers = [watch.judge(one, look * 2.1, look * 2.1) for look, one in enumerate(seen)]
    assert DuplicateSidecar.GONE not in answers
    assert answers[-1] is DuplicateSidecar.STAYS
