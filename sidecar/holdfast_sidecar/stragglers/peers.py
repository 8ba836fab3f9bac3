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


def spell_ranks(ranks: Sequence[int]) -> str:
    """`rank 3`, `ranks 3, 4 and 9`, `ranks 0, 1, 2, 3, 4, 5 and 12 more`."""
    ordered = sorted(ranks)
    if len(ordered) == 1:
        return f"rank {ordered[0]}"
    shown = ordered if len(ordered) <= 7 else ordered[:6]
    last = str(shown[-1]) if shown is ordered else f"{len(ordered) - 6} more"
    first = shown[:-1] if shown is ordered else shown
    return f"ranks {', '.join(map(str, first))} and {last}"
