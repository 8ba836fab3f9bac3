"""Which of two sidecars of one name speaks for the node."""

from __future__ import annotations

import dataclasses

import pytest

from holdfast_sidecar.decisions.liveness import Heartbeats
from holdfast_sidecar.decisions.namesake import (
    HANDOVER_S,
    STOPPED_S,
    Namesake,
    NamesakeWatch,
    refusal,
)
from holdfast_sidecar.records.node import NodeReport

TIMEOUT_S = 1.1
LOOK_S = 0.1
OTHER = NodeReport("a", "i", 1, -1, 0, -1, True, pid=77, host="vm", boot="b")


def judge(beats: list[int], other: NodeReport = OTHER) -> list[Namesake]:
    """One look a tenth of a second, at these beats."""
    watch = NamesakeWatch(Heartbeats(counted_s=0.6, late_after_s=TIMEOUT_S), TIMEOUT_S)
    answers = []
    for look, beat in enumerate(beats):
        now = look * LOOK_S
        seen = dataclasses.replace(other, beat=beat)
        answers.append(watch.judge(seen, "server", now, now))
    return answers


def first(answers: list[Namesake], what: Namesake) -> float:
    return answers.index(what) * LOOK_S


def test_one_that_never_moves_is_gone_after_the_time_of_a_lost_node() -> None:
    answers = judge([5] * 20)
    assert first(answers, Namesake.GONE) == pytest.approx(TIMEOUT_S, abs=LOOK_S)
    assert Namesake.STAYS not in answers


def test_one_that_lives_stays_after_the_time_of_a_handover() -> None:
    answers = judge(list(range(70)))
    assert first(answers, Namesake.STAYS) == pytest.approx(HANDOVER_S, abs=2 * LOOK_S)
    assert Namesake.GONE not in answers


def test_one_that_leaves_meanwhile_is_waited_for() -> None:
    answers = judge([*range(10), *[9] * 35])
    assert first(answers, Namesake.GONE) == pytest.approx(0.9 + STOPPED_S, abs=2 * LOOK_S)
    assert Namesake.STAYS not in answers


def test_one_that_stands_still_for_two_seconds_was_kept_from_its_turn() -> None:
    answers = judge([*range(10), *[9] * 20, *range(10, 50)])
    assert Namesake.GONE not in answers
    assert answers[-1] is Namesake.STAYS


def test_one_that_outlives_its_launcher_gives_way_at_once() -> None:
    orphan = dataclasses.replace(OTHER, launcher_pid=9, launcher_alive=False)
    assert judge([1], orphan) == [Namesake.GONE]


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
