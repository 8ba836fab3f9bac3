"""Long sequences cost more, and are no slow hardware."""

from __future__ import annotations

import random

import pytest
from bench.stragglers.scenario import Fault, Layout, Scenario
from tests.unit.performance.stragglers.simulated import EIGHT, blamed, follow
from tests.unit.performance.stragglers.told import line

from holdfast_sidecar.performance.stragglers.frame import StepFrame
from holdfast_sidecar.performance.stragglers.role import RoleWatch
from holdfast_sidecar.performance.stragglers.workload import WorkFit
from holdfast_sidecar.records.steps import SlowCause

ONSET = 61


def fitted(*, slow: float = 1.0, frames: int = 40) -> WorkFit:
    """What costs 100 ms and 20 us a token and 2 us a thousand of squares; a rank may be slow."""
    draw, fit = random.Random(1), WorkFit()
    for _ in range(frames):
        rows = []
        for rank in range(8):
            tokens = draw.uniform(2000, 12000)
            squares = tokens * draw.uniform(200, 2000)
            time = 100_000 + 20 * tokens + 0.002 * squares
            rows.append((tokens, squares, time * (slow if rank == 0 else 1) * draw.gauss(1, 0.01)))
        fit.take(rows)
    return fit


def test_what_work_costs_is_learnt_within_a_few_frames() -> None:
    fit = fitted(frames=10)
    assert fit.expected([8000], [8_000_000]) == pytest.approx([276_000], rel=0.02)
    assert fit.expected([2000], [1_000_000]) == pytest.approx([142_000], rel=0.02)


def test_a_slow_rank_does_not_make_work_dearer() -> None:
    fit = fitted(slow=1.5)
    assert fit.expected([8000], [8_000_000]) == pytest.approx([276_000], rel=0.02)


def test_nothing_is_known_of_it_after_one_frame_of_few_ranks() -> None:
    fit = WorkFit()
    fit.take([(1000.0, 0.0, 100.0), (2000.0, 0.0, 200.0)])
    assert not fit.is_ready


def test_tokens_and_squares_that_grow_alike_are_told_apart_by_nobody_and_fit_all_the_same() -> None:
    fit, draw = WorkFit(), random.Random(2)
    for _ in range(20):
        amounts = [draw.uniform(1000, 9000) for _ in range(8)]
        fit.take([(a, 512 * a, 50_000 + 30 * a) for a in amounts])
    assert fit.expected([5000], [512 * 5000]) == pytest.approx([200_000], rel=0.01)


def test_a_rank_slower_than_its_work_can_explain_is_not_taken_for_the_price_of_work() -> None:
    fit = WorkFit()
    for _ in range(20):
        fit.take([(1000.0, 0.0, 100.0)] * 7 + [(1500.0, 0.0, 250.0)])
    assert fit.expected([1500], [0])[0] <= 1.5 * fit.expected([1000], [0])[0] + 1


def test_long_sequences_are_no_slow_hardware() -> None:
    for seed in range(3):
        assert not blamed(follow(Scenario(seed, EIGHT, lengths=0.5), 300))


def test_a_slow_rank_is_found_where_work_varies() -> None:
    fault = Fault(SlowCause.COMPUTE, (3,), 0.3, ONSET)
    told = follow(Scenario(4, EIGHT, lengths=0.4, faults=(fault,)), ONSET + 30)
    first = min(step for step, excesses in told.items() if excesses)
    assert first <= ONSET + 9
    assert blamed(told) == {3}
    (excess,) = told[ONSET + 30]
    assert excess.slowdown == pytest.approx(0.3, abs=0.05)
    assert abs(excess.by_work) < 0.3


@pytest.mark.parametrize("lengths", [0.0, 0.3])
def test_more_work_is_told_as_such(lengths: float) -> None:
    fault = Fault(SlowCause.UNEVEN_WORK, (3,), 0.5, ONSET)
    told = follow(Scenario(5, EIGHT, lengths=lengths, faults=(fault,)), ONSET + 60)
    assert blamed(told) == {3}
    (excess,) = told[ONSET + 60]
    assert excess.slowdown < 0.05
    assert excess.by_work > 0.25
    assert excess.work > 1.25


def told_of_lengths(more: float, frames: range, deviation: float = 0.15) -> list[int]:
    """Frames from the first of which on rank 0 of four is told for its work; in these it is given
    so much more, in the others lengths vary by chance alone."""
    watch, draw, found = RoleWatch(""), random.Random(11), []
    for number in range(1, frames.stop):
        lines = []
        for rank in range(4):
            work = draw.lognormvariate(0.0, deviation)
            work *= 1.0 + more * (rank == 0 and number in frames)
            lines.append(
                line(rank, number, forward=round(500_000 * work), tokens=round(9000 * work))
            )
        frame = StepFrame(number - 1, number, {one.rank: one for one in lines})
        if any(excess.is_by_work_alone for excess in watch.follow(lines, frame, number, 4)):
            found.append(number)
    return found


def test_longer_sequences_in_a_row_by_chance_are_nothing_to_be_told_of() -> None:
    assert told_of_lengths(0.12, range(200, 227)) == []


def test_much_longer_ones_are_told_within_ten_steps() -> None:
    assert 200 <= told_of_lengths(0.6, range(200, 228))[0] < 210


def test_slow_hardware_with_more_work_is_told_apart() -> None:
    faults = (
        Fault(SlowCause.UNEVEN_WORK, (3,), 0.4, ONSET),
        Fault(SlowCause.COMPUTE, (3,), 0.3, ONSET),
    )
    told = follow(Scenario(6, EIGHT, lengths=0.3, faults=faults), ONSET + 60)
    (excess,) = told[ONSET + 60]
    assert excess.rank == 3
    assert excess.slowdown == pytest.approx(0.3, abs=0.06)
    assert excess.by_work > 0.2


def test_a_small_group_learns_what_work_costs_too() -> None:
    fault = Fault(SlowCause.COMPUTE, (1,), 0.4, ONSET)
    told = follow(Scenario(7, Layout(4), lengths=0.4, faults=(fault,)), ONSET + 20)
    assert blamed(told) == {1}
