"""Whom a rank is measured by: the median of the others, itself left out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Others(NamedTuple):
    """The median of all but one, for every one at once: it depends only on which half it is in."""

    middle: float
    for_upper: float
    """For whoever is above the middle."""
    for_lower: float
    for_middle: float
    """For whoever lies on it."""

    def of(self, value: float) -> float:
        """The median of the others of whoever has this value."""
        if value > self.middle:
            return self.for_upper
        return self.for_lower if value < self.middle else self.for_middle


def others(values: Sequence[float]) -> Others:
    """Of two values or more."""
    ordered = sorted(values)
    half = len(ordered) // 2
    below, at = ordered[half - 1], ordered[half]
    if len(ordered) % 2 == 0:
        return Others((below + at) / 2, below, at, at)
    above = ordered[half + 1]
    return Others(at, (below + at) / 2, (at + above) / 2, (below + above) / 2)


FAR_OUT = 0.1
"""Of the middle one of three: what lies farther above it is no noise of a healthy job's."""


def excesses_of(values: Sequence[float]) -> list[float]:
    """How far each lies above the median of the others, as a part of it; the middle one not at all.

    Of three, that median is the mean of two, and one of them may be anywhere: for the lowest, it
    counts for no more than `FAR_OUT`. Else two that are well would seem restless beside one that is
    slow, as they take turns in being the lowest.
    """
    middle, upper, lower, _ = others(values)
    middle = max(middle, 1.0)
    if len(values) == 3:
        lower = min(lower, middle * (1.0 + FAR_OUT / 2))
    return [
        value / (upper if value > middle else lower if value < middle else middle) - 1.0
        for value in values
    ]


def spell_ranks(ranks: Sequence[int]) -> str:
    """`rank 3`, `ranks 3, 4 and 9`, `ranks 0, 1, 2, 3, 4, 5 and 12 more`."""
    ordered = sorted(ranks)
    if len(ordered) == 1:
        return f"rank {ordered[0]}"
    shown = ordered if len(ordered) <= 7 else ordered[:6]
    last = str(shown[-1]) if shown is ordered else f"{len(ordered) - 6} more"
    first = shown[:-1] if shown is ordered else shown
    return f"ranks {', '.join(map(str, first))} and {last}"
