"""Roles of two and three: one rank's own noise is not the others', and steps may be long."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from tests.unit.performance.stragglers.told import line, places

from holdfast_sidecar.performance.stragglers.frame import Excess, StepFrame
from holdfast_sidecar.performance.stragglers.judge import Detector

Own = Callable[[int, int, random.Random], float]
"""Rank, step, a source of chance: microseconds."""


class Followed:
    """So many ranks of one role, step by step."""

    def __init__(
        self, ranks: int, steps: int, own: Own, seed: int = 1, step_s: float = 1.0
    ) -> None:
        draw, detector, where = random.Random(seed), Detector(), places(*[""] * ranks)
        self.told: dict[int, tuple[Excess, ...]] = {}
        self.whys: dict[int, tuple[str, ...]] = {}
        for step in range(1, steps + 1):
            owns = [int(own(rank, step, draw)) for rank in range(ranks)]
            lines = {
                rank: line(rank, step, forward=us, backward=0, data=0, total=max(owns) + 1000)
                for rank, us in enumerate(owns)
            }
            self.told[step] = detector.follow(
                StepFrame(step - 1, step, lines), where, step * step_s
            )
            self.whys[step] = detector.unjudged

    @property
    def blamed(self) -> set[int]:
        return {one.rank for told in self.told.values() for one in told}

    @property
    def first(self) -> int:
        return min(step for step, told in self.told.items() if told)

    def varying(self, since: int) -> list[str]:
        return [w for step, why in self.whys.items() if step >= since for w in why if "vary" in w]


def nearly(us: float, draw: random.Random, by: float = 0.02) -> float:
    return us * (1 + draw.uniform(-by, by))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
def test_long_steps_of_a_rank_that_is_slow_from_the_first_on_need_no_more_of_them(
    ranks: int, seed: int
) -> None:
    def own(rank: int, step: int, draw: random.Random) -> float:
        return nearly(4e6, draw) + (2e6 if rank == 1 else 0)

    followed = Followed(ranks, 24, own, seed, step_s=60.0)
    assert followed.first <= 13
    assert followed.blamed == {1}
    assert followed.told[24][0].since_step <= 5
    assert not followed.varying(since=1)


@pytest.mark.parametrize("seed", range(5))
def test_of_three_ranks_the_restless_one_is_named_and_the_steady_ones_are_judged(
    seed: int,
) -> None:
    def own(rank: int, step: int, draw: random.Random) -> float:
        extra = draw.expovariate(1 / 15e4) if rank == 0 else 0
        return nearly(15e4, draw) + extra

    followed = Followed(3, 130, own, seed)
    assert followed.blamed == {0}
    assert followed.first <= 70
    assert not any("1 and 2" in why for why in followed.varying(since=1))


def test_of_two_it_is_said_whose_times_vary_and_that_the_other_has_nobody_to_be_compared_with() -> (
    None
):
    def own(rank: int, step: int, draw: random.Random) -> float:
        return nearly(15e4, draw) + (draw.expovariate(1 / 15e4) if rank == 0 else 0)

    restless, steady = Followed(2, 100, own).whys[100]
    assert restless.startswith("rank 0: its own times vary by")
    assert steady == "rank 1: the times of rank 0 vary too much to compare with"


@pytest.mark.parametrize("seed", range(5))
def test_a_rank_that_is_twenty_times_slower_is_named_however_it_varies(seed: int) -> None:
    def own(rank: int, step: int, draw: random.Random) -> float:
        return nearly(6e4, draw) + (draw.uniform(1.2e6, 2e6) if rank == 1 else 0)

    followed = Followed(3, 40, own, seed)
    assert followed.blamed == {1}
    assert followed.first <= 20
    assert not followed.varying(since=1)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("ranks", [3, 4, 8])
def test_noise_that_jumps_for_all_of_them_is_nobodys_slowness(ranks: int, seed: int) -> None:
    def own(rank: int, step: int, draw: random.Random) -> float:
        return 15e4 * max(0.2, draw.gauss(1, 0.02 if step < 100 else 0.3))

    assert not Followed(ranks, 200, own, seed).blamed


def test_before_anything_is_known_of_the_noise_that_is_what_is_told() -> None:
    followed = Followed(3, 12, lambda rank, step, draw: nearly(4e6, draw))
    (why,) = followed.whys[5]
    assert why.startswith("ranks 0, 1 and 2: too few of their steps are known yet")
    assert not followed.whys[12]


@pytest.mark.parametrize(("step_s", "is_told"), [(0.1, True), (60.0, False)])
def test_who_was_slow_and_tells_nothing_any_more_is_slow_for_a_minute(
    step_s: float, is_told: bool
) -> None:
    detector, where, draw = Detector(), places("", "", "", ""), random.Random(1)
    excesses: tuple[Excess, ...] = ()
    for step in range(1, 46):
        lines = {
            rank: line(rank, step, forward=int(nearly(3e5, draw)) + 200_000 * (rank == 3))
            for rank in range(4 if step <= 40 else 3)
        }
        excesses = detector.follow(StepFrame(step - 1, step, lines), where, step * step_s)
        assert excesses or step != 40
    assert bool(excesses) is is_told
