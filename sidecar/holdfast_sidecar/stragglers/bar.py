"""What evidence has to pass before a rank is called slow. Pure arithmetic.

A cumulated likelihood ratio (CUSUM; Page, 1954) of "slower by so much" against "like its peers".
What a frame says is bounded (Huber), so that no single one decides, however slow it was; and it is
what is new in a frame that counts, for a long hiccup has an echo in the next ones.
"""

from __future__ import annotations

import math
import operator
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
