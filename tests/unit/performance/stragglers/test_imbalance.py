"""What uneven steps do to the least wait of frames of several steps."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from tests.unit.performance.stragglers.exchanging import grouped
from tests.unit.performance.stragglers.told import line

from holdfast_sidecar.performance.stragglers.exchanges import Exchanges, SlowExchange, added_us
from holdfast_sidecar.performance.stragglers.frame import StepFrame

OWN_US = 280_000
EXCHANGE_US = 20_000
ONSET_FRAME = 41
FRAMES = 90


@dataclass(frozen=True)
class Uneven:
    """Ranks each of whose steps is longer by what chance says."""

    seed: int
    ranks: int = 8
    stride: int = 8
    draw: Callable[[random.Random], float] = lambda chance: abs(chance.gauss(0, 1))
    before: float = 0.01
    after: float = 0.01
    """Of a rank's own time, by how much; from the onset on."""
    slower_us: int = 0
    """The link, from the onset on."""

    def told(self) -> dict[int, tuple[SlowExchange, ...]]:
        places = grouped([f"node-{rank}" for rank in range(self.ranks)], range(self.ranks))
        chance, exchanges = random.Random(self.seed), Exchanges()
        return {
            number: exchanges.follow(self._frame(number, chance), places)
            for number in range(1, FRAMES)
        }

    def _frame(self, number: int, chance: random.Random) -> StepFrame:
        is_on = number >= ONSET_FRAME
        sigma = self.after if is_on else self.before
        longer = EXCHANGE_US + (self.slower_us if is_on else 0)
        own, waits = [0.0] * self.ranks, [0.0] * self.ranks
        for _ in range(self.stride):
            step = [OWN_US * (1 + sigma * self.draw(chance)) for _ in range(self.ranks)]
            for rank, mine in enumerate(step):
                own[rank] += mine / self.stride
                waits[rank] += (max(step) - mine + longer) / self.stride
        last = number * self.stride
        lines = {}
        for rank in range(self.ranks):
            forward, wait = round(own[rank]), round(waits[rank])
            times = {"forward": forward, "wait_1": wait, "total": 20_000 + forward + wait}
            lines[rank] = line(rank, last, backward=0, **times)
        return StepFrame(last - self.stride, last, lines)


def hiccups(chance: random.Random) -> float:
    """A third as long again, in one step of twenty, per tenth that is asked for."""
    return 3.3 if chance.random() < 0.05 else 0.0


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("ranks", "stride"), [(2, 8), (4, 8), (8, 2), (8, 8), (8, 32), (32, 8)])
def test_steps_that_grow_uneven_are_no_slow_link(seed: int, ranks: int, stride: int) -> None:
    told = Uneven(seed, ranks, stride, after=0.1).told()
    assert not any(told.values())


@pytest.mark.parametrize("seed", range(4))
def test_hiccups_of_each_member_in_turn_are_no_slow_link(seed: int) -> None:
    told = Uneven(seed, draw=hiccups, before=0.0, after=0.1).told()
    assert not any(told.values())


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("sigma", [0.01, 0.03])
def test_a_slow_link_is_found_where_steps_are_as_uneven_as_ever(seed: int, sigma: float) -> None:
    told = Uneven(seed, before=sigma, after=sigma, slower_us=40_000).told()
    assert not any(slow for number, slow in told.items() if number < ONSET_FRAME)
    assert all(told[number] for number in range(ONSET_FRAME + 4, FRAMES))


def test_a_slow_link_is_found_though_steps_grow_uneven_as_well() -> None:
    told = Uneven(1, after=0.03, slower_us=100_000).told()
    assert told[ONSET_FRAME + 6]


def test_frames_of_one_step_add_nothing() -> None:
    own = {0: 100_000.0, 1: 200_000.0}
    assert added_us([(1, own)], (0, 1), 2) == added_us([], (0, 1), 2) == 0.0
    assert 0.0 < added_us([(4, own)], (0, 1), 2) < added_us([(4, own)], (0, 1), 2, unsure=1.0)
    assert added_us([(4, {0: 1.0})], (0, 1), 2) == 0.0
