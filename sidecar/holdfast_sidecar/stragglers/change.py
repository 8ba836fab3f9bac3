"""When did a rank become slow, and is it still: one rank's excesses, frame by frame.

A cumulated likelihood ratio (CUSUM, Page 1954) of "slower by `DESIGN`" against "like its peers",
with each frame's part bounded (Huber), so that no single frame can decide, however slow it was.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from itertools import pairwise
from typing import NamedTuple

DESIGN = 0.08
"""The excess that the ratio is made for: a tenth is to be found, and some of it is noise."""

LEAST = 0.05
"""Machines of one kind differ by a few percent all their life; what is less is nobody's fault."""

FEWEST_FRAMES = 4
"""Before anything is said; one hiccup and its echo fill two or three."""

KEPT = 48
"""Frames that are remembered."""

NEWEST = 9
"""Frames of which the median says whether it is still slow: an odd number that a lull of four
can't turn."""

OVER = 0.5
"""Below that part of the least excess it is over: half, so that it can't flap about the limit."""


class Bar(NamedTuple):
    """What evidence has to pass, for one role and frame."""

    sigma: float
    inflation: float
    half: float
    """Of the excess that the ratio is made for: what is above speaks for slow."""
    gain: float
    limit: float
    """A frame counts for no more than so far from the half."""
    enough: float
    """Cumulated log likelihood ratio."""
    most: float
    z: float
    """The mean excess since the change must be so many of its standard errors above nothing."""

    @classmethod
    def of(cls, sigma: float, inflation: float, ranks: int) -> Bar:
        """For noise of `sigma` in a role of a job with so many ranks."""
        # Whoever looks at more ranks sees more chance peaks: the bar rises with their number.
        enough = 13.0 + math.log(max(ranks, 2))
        design = max(DESIGN, sigma)
        gain = design / (sigma * sigma * inflation)
        # A frame says at most so much: beyond two sigma it may be a tail, and four frames are
        # the fewest that decide.
        limit = min(2.0 * sigma, enough / FEWEST_FRAMES / gain)
        z = 4.0 + 0.12 * math.log2(max(ranks, 2))
        return cls(sigma, inflation, design / 2, gain, limit, enough, 3.0 * enough, z)


class Verdict(NamedTuple):
    """It is slow."""

    level: float
    """By so much now, as a part of its peers' time."""
    evidence: float
    since_step: int
    steps: int
    """Since then."""
    lasted_s: float


class Trail:
    """One rank's excesses over its peers."""

    __slots__ = ("evidence", "is_slow", "past", "since_s", "since_step", "slow_since", "steps")

    def __init__(self) -> None:
        self.past: deque[float] = deque(maxlen=KEPT)
        self.steps: deque[int] = deque(maxlen=KEPT)
        """Of each of them the first step."""
        self.evidence = 0.0
        self.since_step = 0
        """First step of the frame with which the evidence began to grow."""
        self.since_s = 0.0
        self.is_slow = False

    def remember(self, excess: float, first_step: int) -> None:
        """A frame that can't be judged yet."""
        self.past.append(excess)
        self.steps.append(first_step)

    def take(self, excess: float, first_step: int, now_s: float, bar: Bar) -> float:
        """One more frame; the evidence so far that it is slow."""
        self.past.append(excess)
        self.steps.append(first_step)
        beyond = excess - bar.half
        limit = bar.limit
        if beyond > limit:
            beyond = limit
        elif beyond < -limit:
            beyond = -limit
        before = self.evidence
        evidence = before + bar.gain * beyond
        if evidence <= 0.0:
            self.evidence = 0.0
            return 0.0
        if before <= 0.0:
            self.since_step = first_step
            self.since_s = now_s
        # Bounded, so that what was slow for hours need not be quick for hours.
        self.evidence = evidence = min(evidence, bar.most)
        return evidence

    def look_closer(self, bar: Bar, least: float = LEAST) -> float | None:
        """By how much it is slow now; None when it is not."""
        if self.is_slow:
            newest = list(self.past)[-NEWEST:]
            if statistics.median(newest) < OVER * least:
                self.is_slow = False
                self.evidence = 0.0
                return None
            return self._level()
        if self.evidence < bar.enough:
            return None
        since = self._since()
        if len(since) < FEWEST_FRAMES:
            return None
        level = location(since, bar.sigma)
        error = max(bar.sigma, self._own_sigma()) * math.sqrt(bar.inflation / len(since))
        if level < least or level < bar.z * error:
            return None
        self.is_slow = True
        self._date_back(level)
        return level

    def _since(self) -> list[float]:
        """The excesses since the evidence began to grow."""
        began = self.since_step
        return [e for e, step in zip(self.past, self.steps, strict=True) if step >= began]

    def _level(self) -> float:
        return location(self._since()[-NEWEST:] or list(self.past)[-NEWEST:], 0.0)

    def _own_sigma(self) -> float:
        """A rank may be more restless than its peers; then more is needed to call it slow."""
        past = list(self.past)
        sizes = sorted(abs(b - a) for a, b in pairwise(past))
        if len(sizes) < FEWEST_FRAMES:
            return 0.0
        return 1.4826 * sizes[len(sizes) // 2] / math.sqrt(2.0)

    def _date_back(self, level: float) -> None:
        """It may have been slow before there was a measure of noise."""
        for excess, step in zip(reversed(self.past), reversed(self.steps), strict=True):
            if step >= self.since_step:
                continue
            if excess < level / 2:
                break
            self.since_step = step


def location(values: list[float], sigma: float) -> float:
    """Where most of them lie: a mean in which none counts for more than two sigma from the median
    (Huber's estimate, one step of it)."""
    middle = statistics.median(values)
    spread = sigma or 1.4826 * statistics.median(abs(value - middle) for value in values)
    low, high = middle - 2.0 * spread, middle + 2.0 * spread
    return sum(min(max(value, low), high) for value in values) / len(values)
