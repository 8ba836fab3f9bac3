from __future__ import annotations

from collections.abc import Mapping

import pytest
from tests.unit.performance.stragglers.parallel import frame, laid_out

from holdfast_sidecar.performance.stragglers.frame import StepFrame
from holdfast_sidecar.performance.stragglers.pipeline import HeavyStage, Stages

PLACES = laid_out(dp=2, pp=4)
EVEN = dict.fromkeys(range(8), 100.0)


def follow(
    own: Mapping[int, float], steps: int = 60, slow: tuple[int, ...] = ()
) -> HeavyStage | None:
    stages = Stages()
    for step in range(1, steps + 1):
        found = stages.follow(frame(own, step), PLACES, slow)
    return found


def test_a_stage_all_of_whose_ranks_take_longer_is_heavy() -> None:
    heavy = follow(EVEN | {6: 140, 7: 140})
    assert heavy is not None
    assert (heavy.stage, heavy.ranks, heavy.part) == (3, (6, 7), "forward")
    assert abs(heavy.slowdown - 0.4) < 0.01


def test_one_slow_rank_of_a_stage_is_not_the_stage() -> None:
    assert follow(EVEN | {6: 140}) is None
    assert follow(EVEN | {6: 140}, slow=(6,)) is None


def test_stages_that_differ_by_little_are_even() -> None:
    assert follow(EVEN | {6: 106, 7: 106}) is None


def test_nothing_is_said_of_stages_after_a_few_steps() -> None:
    assert follow(EVEN | {6: 140, 7: 140}, steps=10) is None


@pytest.mark.parametrize("at", [1, 2, 40])
@pytest.mark.parametrize("span", [1, 64])
def test_one_frame_makes_no_stage_heavy(at: int, span: int) -> None:
    stages = Stages()
    for number in range(1, 60):
        own = EVEN | ({6: 300, 7: 300} if number == at else {})
        lines = frame(own, number * span).lines
        one = StepFrame((number - 1) * span, number * span, lines)
        assert stages.follow(one, PLACES, ()) is None


def test_stages_are_not_judged_where_waiting_hides_in_the_backward() -> None:
    stages = Stages()
    for step in range(1, 60):
        plain = frame(EVEN | {6: 140, 7: 140}, step)
        lines = {rank: one._replace(waits_seen=0) for rank, one in plain.lines.items()}
        assert stages.follow(StepFrame(step - 1, step, lines), PLACES, ()) is None
    assert "pipeline stages" in stages.unjudged[0]
