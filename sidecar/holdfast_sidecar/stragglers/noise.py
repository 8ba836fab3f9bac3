"""How much a rank's excess over its peers wanders from frame to frame when nothing is wrong.

From differences between frames, not from levels: a rank that is slow all the time has quiet
differences, so it can't hide in a noise of its own making, not even in a group of two.
"""

from __future__ import annotations

import math
from collections import deque

KEPT = 512
"""Differences; older ones are forgotten."""

FEWEST = 12
"""Below that nothing is known of the noise."""

FLOOR = 0.005
"""Of its peers' time. Machines of the same kind differ by as much."""

MAD_TO_SIGMA = 1.4826
"""A normal distribution's sigma is as many median absolute deviations."""

LAG = 4
"""Frames. The correlation of neighbours (0.3 to 0.5 as seen) has died down to 0.3^4 < 1 %."""

MOST_CORRELATED = 0.7
"""Beyond that it is no noise but drift."""


class Noise:
    """Pooled over the ranks of a role and over time; of excesses, as parts of one."""

    def __init__(self) -> None:
        self._next: deque[float] = deque(maxlen=KEPT)
        """Sizes of differences between neighbouring frames."""
        self._later: deque[float] = deque(maxlen=KEPT)
        """The same between frames that are `LAG` apart."""
        self._new = 0
        self._correlation: float | None = None
        self.sigma = 0.0
        """Of one frame's excess; 0: not known yet."""
        self.inflation = 1.0
        """So many times greater the variance of a long mean is than were the frames independent."""

    def take(self, to_next: list[float], to_later: list[float]) -> None:
        """Sizes of differences that came with the newest frame."""
        self._next.extend(to_next)
        self._later.extend(to_later)
        self._new += len(to_later)
        if len(self._later) >= FEWEST and self._new * 8 >= len(self._later):
            self._new = 0
            self._estimate()

    def stretch(self, factor: float) -> None:
        """Frames cover `factor` times as many steps from now on."""
        for differences in (self._next, self._later):
            scaled = [difference / math.sqrt(factor) for difference in differences]
            differences.clear()
            differences.extend(scaled)
        if self.sigma:
            self._estimate()

    def _estimate(self) -> None:
        near, far = _median(self._next), _median(self._later)
        count = len(self._later)
        # Var(x[t] - x[t-k]) = 2 sigma^2 (1 - correlation at lag k)
        correlation = 1.0 - (near / far) ** 2 if far > 0 else 0.0
        correlation = min(max(correlation, 0.0), MOST_CORRELATED)
        before = self._correlation
        weight = 0.25 if before is not None and count == KEPT else 1.0
        self._correlation = weight * correlation + (1 - weight) * (before or 0.0)
        self.inflation = (1 + self._correlation) / (1 - self._correlation)
        # A median of few may be far too small: its own error is about 1.2 / sqrt(count) of it.
        caution = 1.0 + 2.0 / math.sqrt(count)
        self.sigma = max(MAD_TO_SIGMA * far / math.sqrt(2.0) * caution, FLOOR)


def _median(values: deque[float]) -> float:
    ordered = sorted(values)
    return ordered[len(ordered) // 2] if ordered else 0.0
