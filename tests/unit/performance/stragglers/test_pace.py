"""When every rank takes longer than before: the job's own change, and nobody's fault."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from tests.unit.performance.stragglers.told import line

from holdfast_sidecar.performance.stragglers.frame import StepFrame
from holdfast_sidecar.performance.stragglers.job_pace import JobPace
from holdfast_sidecar.records.steps import PaceChange

RANKS = range(3)
Parts = dict[str, int]


def watch(
    steps: int, of: Callable[[int, int], Parts], pace: JobPace | None = None, first: int = 1
) -> dict[int, PaceChange | None]:
    """Step -> what is told; `of`: the parts of a rank's step."""
    pace, told = pace or JobPace(), {}
    for step in range(first, first + steps):
        lines = {rank: line(rank, step, **of(rank, step)) for rank in RANKS}
        told[step] = pace.follow(StepFrame(step - 1, step, lines))
    return told


def of_all(step: int, factor: float = 1.8, since: int = 200) -> Parts:
    return {"forward": round(280_000 * (factor if step >= since else 1.0))}


def test_every_rank_slower_from_a_step_on_is_told_with_that_step() -> None:
    told = watch(230, lambda _, step: {**of_all(step, 3.0), "backward": 0, "data": 0})
    assert not any(told[step] for step in range(1, 200))
    change = told[215]
    assert change is not None
    assert (change.since_step, change.part) == (200, "forward")
    assert change.ratio == pytest.approx(3.0)
    assert (change.before_s, change.now_s) == pytest.approx((0.28, 0.84))
    assert told[230] == change
    assert min(step for step, one in told.items() if one) <= 210


def test_a_single_rank_is_no_change_of_all() -> None:
    told = watch(300, lambda rank, step: of_all(step, 5.0) if rank else {})
    assert not any(told.values())


def test_noise_is_no_change() -> None:
    dice = random.Random(3)
    told = watch(2000, lambda *_: {"forward": round(280_000 * dice.lognormvariate(0, 0.3))})
    assert not any(told.values())


def test_steps_that_become_quicker_are_none_and_what_follows_counts_from_them() -> None:
    told = watch(300, lambda _, step: of_all(step, 0.2, since=30))
    assert not any(told.values())
    pace = JobPace()
    watch(100, lambda _, step: of_all(step, 4.0, since=0), pace)
    watch(100, lambda *_: {}, pace, first=101)
    told = watch(100, lambda _, step: of_all(step, 4.0, since=201), pace, first=201)
    assert (change := told[300]) is not None
    assert change.since_step == 201


def test_it_is_told_until_it_is_over() -> None:
    told = watch(400, lambda _, step: of_all(step, 2.5) if step < 260 else {})
    assert told[259] is not None
    assert not any(told[step] for step in range(280, 401))


def test_a_burst_is_none() -> None:
    told = watch(300, lambda _, step: of_all(step, 9.0, since=0) if step % 50 < 4 else {})
    assert not any(told.values())


def test_more_work_for_all_explains_it() -> None:
    told = watch(300, lambda _, step: {**of_all(step), "tokens": 1800 if step >= 200 else 1000})
    assert not any(told.values())


def test_a_part_that_is_not_own_work_on_all_of_them_is_left_out() -> None:
    """Where waiting can't be told from work in one's backward pass, it may be what grew."""
    told = watch(300, lambda _, step: {"backward": 5000 * step, "waits_seen": 0})
    assert not any(told.values())


def test_parts_that_are_seen_from_a_step_on_are_no_change() -> None:
    def seen_later(_: int, step: int) -> Parts:
        return {"backward": 500_000, "waits_seen": int(step > 100)}

    assert not any(watch(300, seen_later).values())


def test_a_frame_that_sees_less_does_not_end_it() -> None:
    def seen_mostly(_: int, step: int) -> Parts:
        return {**of_all(step, 4.0), "waits_seen": int(step % 30 > 0)}

    told = watch(300, seen_mostly)
    assert all(told[step] for step in range(215, 301))
    assert not any(told[step] for step in range(1, 200))
