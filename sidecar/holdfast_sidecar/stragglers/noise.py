"""How much a rank's excess over its peers wanders from frame to frame when nothing is wrong.

From differences between frames, not from levels: a rank that is slow all the time has quiet
differences, so it can't hide in a noise of its own making, not even in a group of two.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence

KEPT = 1024
"""Differences; older ones are forgotten."""

HEALTHY = 512
"""Frames of healthy ranks, for what their tails are like."""

FEWEST = 12
"""Below that nothing is known of the noise."""

FLOOR = 0.005
"""Of its peers' time. Machines of the same kind differ by as much."""

MAD_TO_SIGMA = 1.4826
"""A normal distribution's sigma is as many median absolute deviations."""

BEYOND = 3.0
"""Sigmas of a difference, beyond which it counts no more for what neighbours have in common."""

MOST_ALIKE = 0.7
"""Beyond that it is no noise but drift."""

JUMPED = 5.0
"""Times the usual noise; of few ranks with heavy tails, some frames may well say three times."""

Past = Sequence[float]
"""One rank's excesses, the newest last."""

LOOKS_BACK = 3
"""Frames that are needed of a rank."""


class Noise:
    """Pooled over the ranks of a role and over time; of excesses, as parts of one."""

    def __init__(self) -> None:
        self._differences: deque[tuple[float, float]] = deque(maxlen=KEPT)
        """Newest excess less the one before, and the same one frame earlier."""
        self._new = 0
        self._fresh: deque[float] = deque(maxlen=HEALTHY)
        self.sigma = 0.0
        """Of one frame's excess; 0: not known yet."""
        self.likeness = 0.0
        """Correlation of neighbouring frames: what is slow in one is partly so in the next."""

    @property
    def healthy(self) -> Sequence[float]:
        """What was new in frames of ranks that are not slow."""
        return self._fresh

    def take(self, pasts: Sequence[Past], healthy: Sequence[Past]) -> bool:
        """The excesses of some ranks up to the newest frame, and of those that are not slow;
        whether they change what was known."""
        for past in pasts:
            newest, before, earlier = past[-1], past[-2], past[-3]
            self._differences.append((newest - before, before - earlier))
        self._new += len(pasts)
        known = len(self._differences)
        likeness = self.likeness
        self._fresh.extend(fresh_of(past[-1], past[-2], likeness) for past in healthy)
        if known < FEWEST or self._new * 2 < known:
            return False
        self._new = 0
        self._estimate()
        return True

    def has_jumped(self, newest: Sequence[Past]) -> bool:
        """Whether the newest frames of some ranks are far more restless than usual; then only they
        count from now on."""
        triples = [
            (c - b, b - a)
            for past in newest
            for a, b, c in zip(past, past[1:], past[2:], strict=False)
        ]
        if len(triples) < 2 * FEWEST or not self.sigma:
            return False
        if sigma_of([abs(new) for new, _ in triples], self.likeness) < JUMPED * self.sigma:
            return False
        self._differences.clear()
        self._differences.extend(triples)
        self._fresh.clear()
        self._new = 0
        self._estimate()
        return True

    def stretch(self, factor: float) -> None:
        """Frames cover `factor` times as many steps from now on."""
        scale = math.sqrt(factor)
        scaled = [(a / scale, b / scale) for a, b in self._differences]
        self._differences.clear()
        self._differences.extend(scaled)
        self._fresh = deque((fresh / scale for fresh in self._fresh), maxlen=HEALTHY)
        if self.sigma:
            self._estimate()

    def _estimate(self) -> None:
        count = len(self._differences)
        sizes = sorted(abs(newest) for newest, _ in self._differences)
        typical = MAD_TO_SIGMA * sizes[count // 2]
        self.likeness = self._alike(BEYOND * typical)
        # A median of few may be far too small: its own error is about 1.2 / sqrt(count) of it.
        caution = 1.0 + 1.2 / math.sqrt(count)
        self.sigma = max(sigma_of(sizes, self.likeness) * caution, FLOOR)

    def _alike(self, limit: float) -> float:
        """Differences in a row are correlated by -(1 - likeness) / 2."""
        square = product = 1e-12
        for newest, before in self._differences:
            a = min(max(newest, -limit), limit)
            b = min(max(before, -limit), limit)
            square += a * a + b * b
            product += a * b
        # Of few nothing is known but that there is some.
        trust = min(1.0, len(self._differences) / 200.0)
        alike = 1.0 + 4.0 * product / square
        return min(max(trust * alike + (1.0 - trust) * 0.3, 0.0), MOST_ALIKE)


def sigma_of(sizes: Sequence[float], likeness: float) -> float:
    """Of one frame's excess, from differences of neighbouring ones."""
    typical = MAD_TO_SIGMA * sorted(sizes)[len(sizes) // 2]
    # Var(x[t] - x[t-1]) = 2 sigma^2 (1 - likeness)
    return typical / math.sqrt(2.0 * (1.0 - likeness))


def fresh_of(excess: float, before: float, likeness: float) -> float:
    """What is new in a frame: less what the one before told of it, and no more than of an excess
    that lasts; where work varies, a slow rank's excess does too."""
    return excess - likeness * (before if before < excess else excess)
