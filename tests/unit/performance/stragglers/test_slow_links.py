from __future__ import annotations

import pytest

from holdfast_sidecar.performance.stragglers.exchanges import SlowExchange
from holdfast_sidecar.performance.stragglers.frame import StepFrame
from holdfast_sidecar.performance.stragglers.placement import RankPlace
from holdfast_sidecar.performance.stragglers.slow_ranks import slow_links, suspect
from holdfast_sidecar.records.steps import FIELDS, SlowCause, StepLine

PLACES = {0: RankPlace(0, "a"), 1: RankPlace(1, "a")}


def frame(clock_permille: int) -> StepFrame:
    nothing = StepLine._make([0] * FIELDS)
    lines = {rank: nothing._replace(rank=rank, clock_permille=clock_permille) for rank in PLACES}
    return StepFrame(49, 50, lines)


@pytest.mark.parametrize(("clock_permille", "told"), [(980, [SlowCause.GPU_LINK]), (0, [])])
def test_only_ranks_with_devices_have_a_link_within_their_node(
    clock_permille: int, told: list[SlowCause]
) -> None:
    slow = SlowExchange("1", "1", 1.0, 41, (0, 1), frozenset({"a"}), 40_000, 20_000)
    troubles = slow_links(suspect([slow], [], []), frame(clock_permille), PLACES, 0.1)
    assert [trouble.named.cause for trouble in troubles] == told


def test_its_slowdown_is_that_of_the_step_and_not_of_a_short_exchange() -> None:
    slow = SlowExchange("1", "1", 19.0, 41, (0, 1), frozenset({"a", "b"}), 40_000, 2_000)
    places = {0: RankPlace(0, "a"), 1: RankPlace(1, "b")}
    (trouble,) = slow_links(suspect([slow], [], []), frame(0), places, 0.138)
    assert trouble.slowdown == pytest.approx(0.38)
    assert "40.0 ms" in trouble.named.evidence[0]
    assert "a, b" in trouble.named.evidence[1]
