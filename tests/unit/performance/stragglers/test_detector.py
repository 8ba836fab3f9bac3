from __future__ import annotations

from itertools import pairwise

import pytest
from bench.stragglers.scenario import Fault, Layout, Scenario
from bench.stragglers.simulated_job import SimulatedJob
from tests.unit.performance.stragglers.simulated import EIGHT, blamed, follow
from tests.unit.performance.stragglers.told import line, places

from holdfast_sidecar.performance.stragglers.frame import Excess, StepFrame
from holdfast_sidecar.performance.stragglers.judge import Detector
from holdfast_sidecar.records.steps import SlowCause

ONSET = 41
FOREVER = 1 << 30


def slow(
    rank: int, slowdown: float, until: int = FOREVER, cause: SlowCause = SlowCause.COMPUTE
) -> tuple[Fault, ...]:
    return (Fault(cause, (rank,), slowdown, ONSET, until),)


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


def test_who_was_slow_from_the_start_is_found_as_soon_as_the_noise_is_known() -> None:
    fault = Fault(SlowCause.COMPUTE, (2,), 0.3, since=0)
    told = follow(Scenario(3, EIGHT, faults=(fault,)), 40)
    assert blamed(told) == {2}
    assert told[20]
    assert told[40][0].since_step <= 5


def test_a_whole_job_that_slows_down_is_nobodys_excess() -> None:
    everybody = Fault(SlowCause.COMPUTE, tuple(range(8)), 0.5, ONSET)
    assert not blamed(follow(Scenario(4, EIGHT, faults=(everybody,)), 120))


def test_one_very_long_step_and_its_echo_are_no_slow_rank() -> None:
    for hiccup in (0.5, 2.0, 10.0, 300.0):
        faults = [
            Fault(SlowCause.COMPUTE, (5,), hiccup * 0.4**echo, ONSET + echo, ONSET + echo + 1)
            for echo in range(6)
        ]
        told = follow(Scenario(5, EIGHT, sigma=0.01, hiccups=0.0, faults=tuple(faults)), 80)
        assert not blamed(told), hiccup


def test_what_passes_is_told_while_it_lasts_and_not_much_longer() -> None:
    told = follow(Scenario(6, EIGHT, faults=slow(1, 0.4, until=ONSET + 25)), 120)
    steps = [step for step, excesses in told.items() if excesses]
    assert ONSET + 3 <= steps[0] <= ONSET + 9
    assert ONSET + 25 <= steps[-1] <= ONSET + 35
    assert steps == list(range(steps[0], steps[-1] + 1))
    assert not any(excess.is_persistent for excesses in told.values() for excess in excesses)


def test_it_is_persistent_after_thirty_steps_and_thirty_seconds() -> None:
    told = follow(Scenario(7, EIGHT, faults=slow(1, 0.4)), ONSET + 40)
    persistent = [s for s, excesses in told.items() if excesses and excesses[0].is_persistent]
    assert ONSET + 29 <= persistent[0] <= ONSET + 33


def test_thirty_quick_steps_do_not_make_it_persistent() -> None:
    job, detector = SimulatedJob(Scenario(7, EIGHT, faults=slow(1, 0.4))), Detector()
    excesses: tuple[Excess, ...] = ()
    for step, lines in enumerate(job.steps(ONSET + 100), start=1):
        frame = StepFrame(step - 1, step, {line.rank: line for line in lines})
        excesses = detector.follow(frame, job.places(), step * 0.1)
    (excess,) = excesses
    assert excess.steps > 90
    assert not excess.is_persistent


def test_a_slowdown_near_the_limit_does_not_flap() -> None:
    told = follow(Scenario(8, EIGHT, sigma=0.02, faults=slow(1, 0.065)), 500)
    slow_at = [bool(excesses) for step, excesses in told.items() if step > ONSET]
    assert any(slow_at)
    assert sum(a != b for a, b in pairwise(slow_at)) <= 3


def test_a_node_of_eight_slow_ranks_of_sixteen_is_found_whole() -> None:
    node = Fault(SlowCause.CPU_CONTENTION, tuple(range(8)), 0.25, ONSET)
    told = follow(Scenario(9, Layout(16), faults=(node,)), ONSET + 20)
    assert blamed(told) == set(range(8))
    assert len(told[ONSET + 15]) == 8


def test_ranks_are_compared_with_those_of_their_role_alone() -> None:
    heavy_stage = Fault(SlowCause.PIPELINE, (8, 9, 10, 11), 0.6, since=0)
    told = follow(Scenario(10, Layout(4, 1, 4), faults=(heavy_stage,)), 100)
    assert not blamed(told)


def test_of_two_ranks_the_slower_is_told_with_less_confidence() -> None:
    of_two = follow(Scenario(11, Layout(2), faults=slow(1, 0.4)), ONSET + 20)[ONSET + 20]
    of_eight = follow(Scenario(11, EIGHT, faults=slow(1, 0.4)), ONSET + 20)[ONSET + 20]
    assert [excess.rank for excess in of_two] == [1]
    assert of_two[0].confidence <= 0.6 < 0.95 < of_eight[0].confidence


def test_three_ranks_are_enough_to_say_who() -> None:
    told = follow(Scenario(12, Layout(3), faults=slow(1, 0.3)), ONSET + 20)
    assert blamed(told) == {1}


@pytest.mark.parametrize(
    ("cause", "part"),
    [
        (SlowCause.DATA_LOADING, "data"),
        (SlowCause.GPU_LINK, "transfer"),
        (SlowCause.COLLECTOR, "forward"),
        (SlowCause.COMPUTE, "backward"),
    ],
)
def test_it_is_told_in_which_part_of_a_step_the_time_goes(cause: SlowCause, part: str) -> None:
    told = follow(Scenario(13, EIGHT, faults=slow(6, 0.3, cause=cause)), ONSET + 20)
    (excess,) = told[ONSET + 20]
    assert max(excess.parts_us, key=lambda name: excess.parts_us[name]) == part
    assert excess.own_us - excess.peers_us == pytest.approx(240_000, rel=0.25)


def test_more_evidence_makes_more_sure() -> None:
    told = follow(Scenario(14, EIGHT, sigma=0.04, faults=slow(1, 0.12)), ONSET + 60)
    confident = [excesses[0].confidence for excesses in told.values() if excesses]
    assert confident[0] < confident[-1]


def test_an_excess_that_is_nothing_beside_the_step_is_nobodys_trouble() -> None:
    detector, eight = Detector(), places(*[""] * 8)
    for step in range(1, 80):
        waiting = {"total": 10_000_000, "communicating": 9_200_000}
        lines = {rank: line(rank, step, **waiting) for rank in eight}
        lines[3] = line(3, step, forward=280_000 + 150_000, **waiting)
        assert not detector.follow(StepFrame(step - 1, step, lines), eight, float(step))
