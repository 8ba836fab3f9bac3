"""How a counter went in the last ten minutes: a few samples of it, a minute apart."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

SPAN_S = 600.0
"""What went wrong longer ago is over."""

SPACING_S = 60.0
"""So that ten minutes are eleven numbers, and a burst of a second falls into one of them."""


@dataclass(frozen=True)
class Trail:
    """(monotonic seconds, value), oldest first; the newest is as of the last reading."""

    samples: tuple[tuple[float, int], ...] = ()

    def then(self, at_s: float, value: int) -> Trail:
        """With the next value. One that is lower than the last was set back (a driver that was
        loaded anew): what was before says nothing then."""
        kept = tuple(sample for sample in self.samples if sample[0] >= at_s - SPAN_S - SPACING_S)
        if kept and value < kept[-1][1]:
            kept = ()
        if len(kept) > 1 and kept[-1][0] - kept[-2][0] < SPACING_S:
            kept = kept[:-1]
        return Trail((*kept, (at_s, value)))

    @property
    def growth(self) -> int:
        """By how much it grew over all of it."""
        return self.samples[-1][1] - self.samples[0][1] if self.samples else 0

    @property
    def minutes_of_growth(self) -> int:
        """In how many of the intervals it grew: a burst grows in one, at most in two."""
        values = [value for _, value in self.samples]
        return sum(later > earlier for earlier, later in pairwise(values))

    @property
    def length_s(self) -> float:
        """From the first sample to the newest, seconds."""
        return self.samples[-1][0] - self.samples[0][0] if self.samples else 0.0
