from __future__ import annotations

import pytest
from bench.stragglers.cause_cases import TUNING, draw
from bench.stragglers.causes import judge
from bench.stragglers.scenario import Fault, Layout, Scenario
from tests.unit.performance.stragglers.simulated import EIGHT
from tests.unit.performance.stragglers.test_judge import ONSET, watch

from holdfast_sidecar.records.steps import SlowCause


def burst(cause: SlowCause, every: int, slowdown: float = 0.3, **more: object) -> Scenario:
    faults = (Fault(cause, (5,), slowdown, ONSET, every=every),)
    return Scenario(3, EIGHT, faults=faults, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("every", [2, 5])
@pytest.mark.parametrize("cause", [SlowCause.COLLECTOR, SlowCause.DATA_LOADING])
def test_who_is_slow_every_few_steps_is_found_and_its_cause_named(
    cause: SlowCause, every: int
) -> None:
    told = watch(burst(cause, every), ONSET + 50)
    (slow,) = told[ONSET + 50].slow
    assert (slow.ranks, slow.cause) == ([5], cause)
    assert abs(slow.slowdown - 0.3) < 0.05
    assert abs(slow.gain - 0.25) < 0.08
    assert "longer than usual" in slow.evidence[0]
    first = min(step for step, standing in told.items() if standing.slow)
    assert first - ONSET < 6 * every


def test_a_burst_now_and_then_is_no_slowness() -> None:
    told = watch(burst(SlowCause.COLLECTOR, 16, slowdown=0.03), ONSET + 130)
    assert not any(standing.slow for standing in told.values())


def test_bursts_that_are_over_are_told_no_more() -> None:
    until = ONSET + 40
    faults = (Fault(SlowCause.COLLECTOR, (5,), 0.3, ONSET, until, every=4),)
    told = watch(Scenario(3, EIGHT, faults=faults), until + 30)
    assert told[until - 1].slow
    assert not told[until + 30].slow


def test_batches_of_random_length_are_nobodys_bursts() -> None:
    for tells_work in (True, False):
        scenario = Scenario(11, EIGHT, lengths=0.3, tells_work=tells_work)
        assert not any(standing.slow for standing in watch(scenario, 200).values())


def test_who_is_slow_in_each_step_has_no_bursts() -> None:
    told = watch(
        Scenario(3, EIGHT, sigma=0.05, faults=(Fault(SlowCause.COMPUTE, (5,), 0.25, ONSET),)),
        ONSET + 60,
    )
    for standing in told.values():
        assert not any("longer than usual" in text for s in standing.slow for text in s.evidence)
    assert told[ONSET + 60].slow[0].ranks == [5]


def test_who_is_slow_in_each_step_has_none_where_work_varies() -> None:
    case = draw(SlowCause.DATA_LOADING, TUNING, 20)
    assert case.scenario.faults[0].every == 1
    assert case.scenario.lengths
    assert judge(case)["told"] == "data_loading"
    told = watch(case.scenario, case.steps)
    texts = [text for one in told.values() for slow in one.slow for text in slow.evidence]
    assert texts
    assert not any("longer than usual" in text for text in texts)


def test_who_is_slow_every_other_step_is_told_by_its_bursts_alone() -> None:
    scenario = Scenario(
        3,
        Layout(8, 2),
        sigma=0.04,
        tail=0.0,
        faults=(Fault(SlowCause.COLLECTOR, (5,), 0.5, ONSET, every=2),),
    )
    told = watch(scenario, ONSET + 40)
    for step in range(ONSET + 15, ONSET + 40):
        (slow,) = told[step].slow
        assert abs(slow.slowdown - 0.5) < 0.1
        assert slow.cause is SlowCause.COLLECTOR
