"""Whether a rank's long steps may be chance: all ranks have hiccups, some more than others.

As many are asked for as chance would hardly ever give, by how often steps of that size strike the
rank's peers, and never less often than healthy ranks have them anyway.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from holdfast_sidecar.stragglers.spells import Spell

HICCUPS = 0.004
"""Of healthy ranks' steps, those that take as long again: twice what a quiet machine has."""

RARER = 1.5
"""The power by which hiccups of some usual steps are rarer than those of one: they have no mean
size, as it were, but the long ones are few."""

SELDOM = 1e-5
"""Of all that is asked of all ranks at once, so much may be chance: a job is asked some times a
minute, and costs that are worth a word are asked for besides."""

KEPT = 512
"""Of a role's newest spells: forty frames of four thousand healthy ranks, hours of eight."""

FEWEST = 3
"""Of a size: less is no habit."""

BESIDE = 3.0
"""Times what the middle one of its peers loses: where most do the same, it is what they do."""


@dataclass
class Chance:
    """Of one role: what its ranks' spells are like."""

    since_step: int = 0
    """From which on all of them are known."""
    _newest: deque[Spell] = field(default_factory=lambda: deque(maxlen=KEPT))

    def note(self, spell: Spell) -> None:
        """A new one, which may grow later."""
        if len(self._newest) == KEPT:
            self.since_step = self._newest[0].step
        self._newest.append(spell)

    def explains(self, spells: Sequence[Spell], ranks: int, judged: int) -> bool:
        """Whether these spells of one rank, the oldest first, may be by chance; of so many ranks of
        its role, and so many that are judged."""
        others = [one for one in self._newest if one.rank != spells[0].rank]
        if self._is_usual(spells, others, ranks):
            return True
        # The first one is where counting began: what matters is that more came after it.
        sizes = sorted(one.size for one in spells[1:])
        asked = {sizes[-FEWEST], sizes[len(sizes) // 2], sizes[0]}
        likelihood = min(self._likelihood(spells, others, ranks, size) for size in asked)
        return likelihood * len(asked) * judged > SELDOM

    def _likelihood(
        self, spells: Sequence[Spell], others: Sequence[Spell], ranks: int, size: float
    ) -> float:
        """That so many spells of that size come so soon after one another."""
        times = sum(one.size >= size for one in spells[1:])
        if times < FEWEST:
            return 1.0
        rarer = min(1.0, size**-RARER)
        first, step = spells[0].step, spells[-1].step
        large = [one for one in others if one.size >= size]
        lately = sum(one.step > first for one in large) / _exposure(step - first, ranks)
        ever = (len(large) + rarer) / _exposure(step - self.since_step, ranks)
        return at_least(times, max(lately, ever, HICCUPS * rarer) * (step - first))

    def _is_usual(self, spells: Sequence[Spell], others: Sequence[Spell], ranks: int) -> bool:
        mine = sum(spell.beyond_us for spell in spells[1:])
        sums: dict[int, float] = {}
        for one in (one for one in others if one.step > spells[0].step):
            sums[one.rank] = sums.get(one.rank, 0.0) + one.beyond_us
        theirs = sorted(_padded(sums, ranks - 1))
        return bool(theirs) and BESIDE * theirs[(len(theirs) - 1) // 2] > mine


def _padded(sums: dict[int, float], ranks: int) -> Iterator[float]:
    yield from sums.values()
    yield from (0.0 for _ in range(ranks - len(sums)))


def _exposure(steps: int, ranks: int) -> float:
    """Steps of other ranks, in which they might have had some."""
    return max(1.0, float((ranks - 1) * steps))


def at_least(times: int, expected: float) -> float:
    """The chance of so many of a kind that comes so often by itself (Poisson), from above."""
    if times <= expected:
        return 1.0
    if expected <= 0:
        return 0.0
    log = times * math.log(expected) - expected - math.lgamma(times + 1)
    # The terms that follow shrink by this or more each.
    return min(1.0, math.exp(log) / (1.0 - expected / (times + 1)))
