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

SIZES = (0.2, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
"""Of a spell, in usual steps; at each of them is counted how many are as large."""

HICCUPS = 0.004
"""Of healthy ranks' steps, those that take as long again: twice what a quiet machine has."""

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

    _newest: deque[Spell] = field(default_factory=lambda: deque(maxlen=KEPT))

    def note(self, spell: Spell) -> None:
        """A new one, which may grow later."""
        self._newest.append(spell)

    def explains(self, spells: Sequence[Spell], ranks: int, judged: int) -> bool:
        """Whether these spells of one rank, the oldest first, may be by chance; of so many ranks of
        its role, and so many that are judged."""
        rank, first = spells[0].rank, spells[0]
        others = [one for one in self._newest if one.rank != rank and one.step > first.step]
        return self._is_usual(spells, others, ranks) or (
            self._likelihood(spells, others, ranks) * len(SIZES) * judged > SELDOM
        )

    def _likelihood(self, spells: Sequence[Spell], others: Sequence[Spell], ranks: int) -> float:
        # The first one is where counting began: what matters is that more came after it.
        later = spells[1:]
        steps = spells[-1].step - spells[0].step
        seen_steps = min(steps, spells[-1].step - self._newest[0].after_step)
        exposure = max(1.0, (ranks - 1) * seen_steps)
        found = 1.0
        for size in SIZES:
            times = sum(one.size >= size for one in later)
            if times < FEWEST:
                break
            theirs = sum(one.size >= size for one in others) / exposure
            rate = max(theirs, HICCUPS * min(1.0, 1.0 / size))
            found = min(found, at_least(times, rate * steps))
        return found

    def _is_usual(self, spells: Sequence[Spell], others: Sequence[Spell], ranks: int) -> bool:
        mine = sum(spell.beyond_us for spell in spells[1:])
        sums: dict[int, float] = {}
        for one in others:
            sums[one.rank] = sums.get(one.rank, 0.0) + one.beyond_us
        theirs = sorted(_padded(sums, ranks - 1))
        return bool(theirs) and BESIDE * theirs[(len(theirs) - 1) // 2] > mine


def _padded(sums: dict[int, float], ranks: int) -> Iterator[float]:
    yield from sums.values()
    yield from (0.0 for _ in range(ranks - len(sums)))


def at_least(times: int, expected: float) -> float:
    """The chance of so many of a kind that comes so often by itself (Poisson), from above."""
    if times <= expected:
        return 1.0
    if expected <= 0:
        return 0.0
    log = times * math.log(expected) - expected - math.lgamma(times + 1)
    # The terms that follow shrink by this or more each.
    return min(1.0, math.exp(log) / (1.0 - expected / (times + 1)))
