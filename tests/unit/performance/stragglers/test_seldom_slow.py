from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from tests.unit.performance.stragglers.told import PLAIN, line, places

from holdfast_sidecar.performance.stragglers.frame import put_together
from holdfast_sidecar.performance.stragglers.judge import Judge
from holdfast_sidecar.records.findings import Moment
from holdfast_sidecar.records.steps import SlowCause, Slowness, SlownessReport, StepLine

USUAL_US = 60_000
EXCHANGE_US = 6_000

Extra = Callable[[int, int], int]
"""(rank, step) -> what it takes longer, microseconds."""


def nothing(rank: int, step: int) -> int:
    return 0


def watch(
    ranks: int,
    steps: int,
    longer: Extra = nothing,
    rare: Extra = nothing,
    stride: int = 1,
    seed: int = 3,
    **kind: int,
) -> dict[int, SlownessReport]:
    """Step -> how a job stands then whose ranks vary by 2 %; what they do rarely is waited for in
    the next step, and `kind` is added to the lines of those that take longer."""
    judge, draw, told = Judge(), random.Random(seed), {}
    where = places(*[""] * ranks)
    waited, at_s, blocks = 0, 0.0, []
    for step in range(1, steps + 1):
        own = [round(USUAL_US * draw.gauss(1, 0.02)) + longer(r, step) for r in range(ranks)]
        lost = [rare(rank, step) for rank in range(ranks)]
        total = max(own) + EXCHANGE_US + waited
        some = [one(r, step, own[r], total, lost[r], longer(r, step), kind) for r in range(ranks)]
        waited = max(lost) - min(lost)
        at_s += (total + min(lost)) / 1e6
        blocks.append(some)
        if step % stride:
            continue
        lines = [put_together(list(pieces), step, stride) for pieces in zip(*blocks, strict=True)]
        blocks = []
        standing = judge.follow(
            some if stride == 1 else lines, where, {}, (), 0, Moment(at_s, 1e9 + at_s, "a")
        )
        if standing is not None:
            told[standing.step] = standing
    return told


def one(
    rank: int, step: int, own: int, total: int, lost: int, longer: int, kind: dict[str, int]
) -> StepLine:
    if lost:
        # As the hooks have it: such a step is no ordinary one.
        evaluated = lost * kind.get("evaluates", 1)
        return PLAIN._replace(rank=rank, step=step, stride=1, lost=lost, evaluated=evaluated)
    more = {name: value for name, value in kind.items() if longer and name in StepLine._fields}
    parts = {"data": 0, "backward": 0, "forward": own, "communicating": total - own}
    return line(rank, step, total=total, **{**parts, **more})


def every(times: int, by_us: int, *ranks: int, since: int = 40) -> Extra:
    return lambda rank, step: by_us * (rank in ranks and step >= since and step % times == 0)


def newest(told: dict[int, SlownessReport]) -> list[Slowness]:
    return told[max(told)].slow


def blamed(told: dict[int, SlownessReport]) -> bool:
    return any(standing.slow for standing in told.values())


@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize("stride", [1, 4])
def test_who_sleeps_in_every_tenth_step_is_told(ranks: int, stride: int) -> None:
    told = watch(ranks, 240, every(10, 500_000, 1), stride=stride)
    (slow,) = newest(told)
    assert slow.ranks == [1]
    assert slow.slowdown == pytest.approx(0.83, rel=0.1)
    assert slow.gain == pytest.approx(50 / 67, rel=0.1)
    assert slow.cause is SlowCause.COMPUTE
    assert "every 10th step or so takes" in slow.evidence[0]
    assert "ms longer than usual" in slow.evidence[0]
    assert slow.since_step in range(37, 80)
    first = min(step for step, standing in told.items() if standing.slow)
    assert first <= 120, "after eight of them at most"


def test_what_it_cost_before_it_was_told_is_counted() -> None:
    (slow,) = newest(watch(3, 240, every(10, 500_000, 1)))
    assert slow.lost_s == pytest.approx(21 * 0.5, rel=0.1)


def test_who_collects_garbage_in_every_eighth_step_is_told_for_it() -> None:
    (slow,) = newest(watch(3, 200, every(8, 700_000, 1), collector=690_000))
    assert (slow.ranks, slow.cause) == ([1], SlowCause.COLLECTOR)


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("stride", [1, 8])
@pytest.mark.parametrize(("evaluates", "cause"), [(1, SlowCause.EVALUATION), (0, SlowCause.SAVING)])
def test_who_pauses_alone_while_the_others_wait_is_told(
    ranks: int, stride: int, evaluates: int, cause: SlowCause
) -> None:
    told = watch(ranks, 400, rare=every(50, 1_000_000, 0), stride=stride, evaluates=evaluates)
    (slow,) = newest(told)
    assert (slow.ranks, slow.cause) == ([0], cause)
    assert slow.gain == pytest.approx(1.0 / 50 / 0.067, rel=0.15)
    assert f"every {'49th' if stride == 8 and ranks > 2 else '50th'} step" in slow.evidence[0]
    first = min(step for step, standing in told.items() if standing.slow)
    assert first <= 304, "the fourth time from when a usual step is known"


@pytest.mark.parametrize(
    ("longer_us", "cause"), [(6_000, SlowCause.EVALUATION), (40_000, SlowCause.COMPUTE)]
)
def test_of_who_pauses_and_is_slow_between_the_dearer_is_told(
    longer_us: int, cause: SlowCause
) -> None:
    told = watch(4, 300, every(1, longer_us, 1), every(10, 200_000, 1), evaluates=1)
    (slow,) = newest(told)
    assert (slow.ranks, slow.cause) == ([1], cause)


def test_what_all_ranks_do_at_once_is_nobodys_pause() -> None:
    told = watch(3, 400, rare=every(50, 1_000_000, 0, 1, 2))
    assert not blamed(told)


def test_a_pause_that_nobody_waits_for_is_none() -> None:
    judge, told = Judge(), {}
    where = places(*[""] * 3)
    for step in range(1, 300):
        lost = 1_000_000 * (step % 20 == 0)
        lines = [one(r, step, USUAL_US, USUAL_US * 2, lost * (r == 0), 0, {}) for r in range(3)]
        standing = judge.follow(lines, where, {}, (), 0, Moment(step * 0.12, step * 0.12, "a"))
        if standing is not None:
            told[step] = standing
    assert not blamed(told)


@pytest.mark.parametrize("stride", [1, 2])
def test_who_comes_and_goes_is_told_as_one_that_lasts(stride: int) -> None:
    def comes_and_goes(rank: int, step: int) -> int:
        return 30_000 * (rank == 0 and step // 60 % 2 == 1)

    told = watch(3, 1000, comes_and_goes, stride=stride)
    for step in range(480, 1000, stride):
        (slow,) = told[step].slow
        assert slow.ranks == [0]
        assert slow.is_persistent
        assert slow.slowdown == pytest.approx(0.25, abs=0.05)
        assert " steps in 120 take " in slow.evidence[0]
    assert told[max(told)].lost_s["compute"] == pytest.approx(8 * 1.8, rel=0.15)


@pytest.mark.parametrize("times", [1, 2, 3])
def test_a_few_long_steps_are_no_habit(times: int) -> None:
    told = watch(
        3, 400, lambda rank, step: 5_000_000 * (rank == 1 and step in (100, 150, 200)[:times])
    )
    assert not blamed(told)


@pytest.mark.parametrize("ranks", [3, 4, 8])
def test_what_strikes_all_ranks_alike_is_nobodys(ranks: int) -> None:
    draw = random.Random(ranks)
    told = watch(ranks, 600, lambda rank, step: 300_000 * (draw.random() < 0.02))
    assert not blamed(told)


def test_each_rank_in_its_turn_is_nobodys() -> None:
    told = watch(4, 300, lambda rank, step: 300_000 * ((step + 3 * rank) % 12 == 0))
    assert not blamed(told)


def test_two_that_do_it_in_steps_of_their_own_are_both_told() -> None:
    told = watch(8, 300, lambda rank, step: 400_000 * (rank in (2, 5) and (step + rank) % 10 == 0))
    assert {rank for slow in newest(told) for rank in slow.ranks} == {2, 5}


def test_what_costs_the_job_next_to_nothing_is_not_told() -> None:
    assert not blamed(watch(3, 600, every(50, 100_000, 1)))


def test_what_is_over_is_told_no_more() -> None:
    told = watch(3, 400, lambda rank, step: 500_000 * (rank == 1 and step < 200 and step % 10 == 0))
    assert told[205].slow
    assert not told[250].slow
