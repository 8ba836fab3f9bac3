"""What evidence has to pass before a rank is called slow. Pure arithmetic.

A cumulated likelihood ratio (CUSUM; Page, 1954) of "slower by so much" against "like its peers".
What a frame says is bounded (Huber), so that no single one decides, however slow it was; and it is
what is new in a frame that counts, for a long hiccup has an echo in the next ones.
"""

from __future__ import annotations

import math
from typing import NamedTuple

MILD = 0.09
"""The excess that the ratio is made for: a tenth is to be found, and a part of it is noise."""

STRONG = 4.0
"""Sigmas: a second ratio is made for that, where it is much more than `MILD`. What lies so far out
is found sooner with it."""

BEYOND = 1.75
"""Sigmas, beyond which a frame counts no more: half of what is out there are tails."""

FEWEST_FRAMES = 4
"""Before anything is said: a hiccup and its echo fill two or three."""

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
    def of(cls, excess: float, sigma: float, enough: float) -> Ratio:
        """For noise of `sigma`."""
        gain = excess / (sigma * sigma)
        return cls(excess / 2.0, gain, min(BEYOND * sigma, enough / FEWEST_FRAMES / gain))


class Bar(NamedTuple):
    """For one role and frame."""

    likeness: float
    sigma: float
    """Of a frame's excess."""
    inflation: float
    enough: float
    """Cumulated log likelihood ratio."""
    most: float
    mild: Ratio
    strong: Ratio | None
    """None where mild is strong."""

    @classmethod
    def of(cls, sigma: float, likeness: float, ranks: int) -> Bar:
        """For a role of a job with so many ranks."""
        # Whoever looks at more ranks sees more chance peaks: the bar rises with their number.
        enough = ENOUGH + math.log(max(ranks, 2))
        fresh = sigma * math.sqrt(1.0 - likeness**2)
        # What is new in every frame of a lasting excess is less by what the one before told.
        mild = max(MILD, sigma) * (1.0 - likeness)
        strong = STRONG * fresh
        return cls(
            likeness,
            sigma,
            (1.0 + likeness) / (1.0 - likeness),
            enough,
            # So that what was slow for hours need not be quick for hours.
            3.0 * enough,
            Ratio.of(mild, fresh, enough),
            Ratio.of(strong, fresh, enough) if strong > 1.3 * mild else None,
        )
