"""What evidence has to pass before a rank is called slow. Pure arithmetic.

A cumulated likelihood ratio (CUSUM; Page, 1954) of "slower by so much" against "like its peers".
What a frame says is bounded (Huber), so that no single one decides, however slow it was; and it is
what is new in a frame that counts, for a long hiccup has an echo in the next ones.
"""

from __future__ import annotations

import math
import operator
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

MILD = 0.09
"""The excess that the ratio is made for: a tenth is to be found, and a part of it is noise."""

STRONG = 4.0
"""Sigmas: a second ratio is made for that, where it is much more than `MILD`. What lies so far out
is found sooner with it."""

REACHES = (1.25, 2.0, 3.0)
"""Sigmas, beyond which a frame counts no more. Which is best depends on the tails: with normal
ones what lies far out is telling, with heavy ones it is not."""

USUAL_REACH = 1.75

FEWEST_FRAMES = 5
"""Of one step each, before anything is said: a long hiccup and its echo fill up to four."""

FEWEST_LONGER = 4
"""Of several steps: the echo stays in the frame or reaches the next one."""

FEWEST_HEALTHY = 100
"""Frames of healthy ranks, before their tails are known."""

UNSURE = 0.7
"""Of the gain, as long as they are not: tails were never so heavy that it took more."""

TOO_SURE = 24.0
"""Frames. The gain that few of them give is too high by about that over their number."""

MOST_GAIN = 1.3
"""Of what normal tails of that sigma would give."""

ENOUGH = 12.5
"""Log likelihood ratio for a job of one rank. A ratio of e^12.5 comes about by chance once in some
hundred thousand frames; with so many ranks that look for it, so much earlier."""


class Ratio(NamedTuple):
    """Of one size of excess."""

    half: float
    """Of it; what is above speaks for slow."""
    gain: float
    limit: float
    """A frame counts for no more than so far from the half."""

    @classmethod
    def of(cls, excess: float, sigma: float, share: float, healthy: Sequence[float]) -> Ratio:
        """For noise of `sigma`, and what is known to come about where nobody is slow. share: what
        a frame may say at most."""
        gain = excess / (sigma * sigma)
        most = share / gain
        if len(healthy) < FEWEST_HEALTHY:
            return cls(excess / 2.0, UNSURE * gain, min(USUAL_REACH * sigma, most))
        choices = [
            _calibrated(cls(excess / 2.0, gain, min(reach * sigma, most)), excess, healthy)
            for reach in REACHES
        ]
        # Few frames hold few of the tails.
        _, best = max(choices)
        return best._replace(gain=best.gain * (1.0 - TOO_SURE / len(healthy)))


def _calibrated(ratio: Ratio, excess: float, healthy: Sequence[float]) -> tuple[float, Ratio]:
    """What a frame of a slow rank says on average, and the ratio with a gain that keeps its word.

    That is Lundberg's: with it the mean of e^(what a healthy frame says) is 1, so that evidence of
    h comes about by chance as seldom as e^-h says, whatever the tails are like.
    """
    half, gain, limit = ratio
    says = [min(max(value - half, -limit), limit) for value in healthy]
    mean = sum(says) / len(says)
    if mean >= 0.0:
        return 0.0, ratio._replace(gain=UNSURE * gain / 2.0)
    trial = MOST_GAIN * gain
    for _ in range(4):
        weights = [math.exp(trial * said) for said in says]
        total = sum(weights)
        above = math.log(total / len(says))
        if above <= 0.0:
            break
        slope = sum(map(operator.mul, weights, says)) / total
        # The curve is convex and the start beyond the root, so every step stays beyond it.
        trial -= above / slope
    slow = sum(min(max(value + half, -limit), limit) for value in healthy) / len(says)
    return trial * slow, ratio._replace(gain=trial)


class Bar(NamedTuple):
    """For one role and frame."""

    likeness: float
    sigma: float
    """Of a frame's excess."""
    inflation: float
    enough: float
    """Cumulated log likelihood ratio."""
    most: float
    fewest: int
    """Frames."""
    mild: Ratio
    strong: Ratio | None
    """None where mild is strong."""

    @classmethod
    def of(
        cls,
        sigma: float,
        likeness: float,
        ranks: int,
        healthy: Sequence[float],
        steps: int = 1,
        caution: float = 0.0,
    ) -> Bar:
        """For a role of a job with so many ranks, and frames of so many steps. caution: what
        evidence has to pass besides, as a log likelihood ratio."""
        # Whoever looks at more ranks sees more chance peaks: the bar rises with their number.
        enough = ENOUGH + caution + math.log(max(ranks, 2))
        fresh = sigma * math.sqrt(1.0 - likeness**2)
        # What is new in every frame of a lasting excess is less by what the one before told.
        mild = max(MILD, sigma) * (1.0 - likeness)
        strong = STRONG * fresh
        fewest = FEWEST_FRAMES if steps == 1 else FEWEST_LONGER
        share = enough / fewest
        return cls(
            likeness,
            sigma,
            (1.0 + likeness) / (1.0 - likeness),
            enough,
            # So that what was slow for hours need not be quick for hours.
            3.0 * enough,
            fewest,
            Ratio.of(mild, fresh, share, healthy),
            Ratio.of(strong, fresh, share, healthy) if strong > 1.3 * mild else None,
        )


# How much a rank's excess over its peers wanders from frame to frame when nothing is wrong.
#
# From differences between frames, not from levels: a rank that is slow all the time has quiet
# differences, so it can't hide in a noise of its own making, not even in a group of two.

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
