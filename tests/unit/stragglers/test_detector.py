from __future__ import annotations

import pytest
from bench.stragglers.scenario import Fault, Layout, Scenario
from tests.unit.stragglers.simulated import EIGHT, blamed, follow

from holdfast_sidecar.records.slowness import Cause

ONSET = 41


def slow(rank: int, slowdown: float, until: int = 1 << 30) -> tuple[Fault, ...]:
    return (Fault(Cause.COMPUTE, (rank,), slowdown, ONSET, until),)


@pytest.mark.parametrize("slowdown", [0.1, 0.3, 0.5])
@pytest.mark.parametrize("layout", [EIGHT, Layout(4), Layout(8, 2, 2)])
def test_a_slow_rank_is_found_within_ten_steps(layout: Layout, slowdown: float) -> None:
    told = follow(Scenario(1, layout, faults=slow(3, slowdown)), ONSET + 20)
    first = min(step for step, excesses in told.items() if excesses)
    assert ONSET < first <= ONSET + 9
    assert blamed(told) == {3}
    (excess,) = told[ONSET + 20]
    assert abs(excess.slowdown - slowdown) < 0.05
    assert abs(excess.since_step - ONSET) <= 2


def test_nobody_is_blamed_in_a_healthy_job() -> None:
    restless = Scenario(2, EIGHT, sigma=0.05, evaluates_every=25, saves_every=40)
    assert not blamed(follow(restless, 400))
