"""When did a rank become slow, and is it still: one rank's excesses, frame by frame."""

from __future__ import annotations

import math
import statistics
from collections import deque
from itertools import pairwise
from typing import NamedTuple

from holdfast_sidecar.stragglers.bar import STRONG, Bar
from holdfast_sidecar.stragglers.noise import MAD_TO_SIGMA, fresh_of

LEAST = 0.05
"""Machines of one kind differ by a few percent all their life; what is less is nobody's fault."""

KEPT = 48
"""Frames that are remembered."""

NEWEST = 9
"""Frames of which the median says whether it is still slow: an odd number that a lull of four
can't turn."""

LEARNS = 0.03
"""Of what is usual for a rank, every time it learns: some thirty make it."""

MOST_USUAL = 0.02
"""However long a rank was slow, no more than that is usual."""

OVER = 0.5
"""Below that part of the least excess it is over: half, so that it can't flap about the limit."""

ERRORS = 3.5
"""The mean excess must be so many of its own errors above nothing, by the rank's own noise."""


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

    __slots__ = ("is_slow", "mild", "past", "since", "strong", "usual", "when")

    def __init__(self) -> None:
        self.past: deque[float] = deque(maxlen=KEPT)
        self.when: deque[tuple[int, float]] = deque(maxlen=KEPT)
        """Of each of them the first step, and when it was told."""
        self.mild = 0.0
        """Evidence, as a log likelihood ratio."""
        self.strong = 0.0
        self.usual = 0.0
        """What is new in its frames, in the mean: machines of one kind differ all their life."""
        self.is_slow = False
        self.since = (0, 0.0)
        """Where `is_slow`: the first step, and when it was told."""

    @property
    def evidence(self) -> float:
        """That it is slow, as a log likelihood ratio."""
        return max(self.mild, self.strong)

    def remember(self, excess: float, when: tuple[int, float]) -> None:
        """A frame that can't be judged yet."""
        self.past.append(excess)
        self.when.append(when)

    def take_again(self, bar: Bar) -> None:
        """What was remembered, now that there is something to judge it by. The noise is known from
        so few frames that it counts for nothing but what lies far out."""
        excesses, times = list(self.past), list(self.when)
        self.past.clear()
        self.when.clear()
        for excess, when in zip(excesses, times, strict=True):
            self.take(excess, when, bar)
        if self.newest() < STRONG * bar.sigma:
            self.mild = self.strong = 0.0

    def take(self, excess: float, when: tuple[int, float], bar: Bar) -> float:
        """One more frame; the evidence so far that it is slow."""
        past = self.past
        before = past[-1] if past else 0.0
        fresh = excess - bar.likeness * (before if before < excess else excess)  # as fresh_of
        fresh -= self.usual
        past.append(excess)
        self.when.append(when)
        half, gain, limit = bar.mild
        # Most ranks, most of the time: nothing speaks for it, nothing did before.
        if fresh <= half and not self.mild and not self.strong:
            return 0.0
        beyond = fresh - half
        beyond = limit if beyond > limit else -limit if beyond < -limit else beyond
        evidence = self.mild + gain * beyond
        if evidence <= 0.0:
            self.mild = evidence = 0.0
        else:
            self.mild = evidence = min(evidence, bar.most)
        if bar.strong is None:
            return evidence
        half, gain, limit = bar.strong
        beyond = fresh - half
        beyond = limit if beyond > limit else -limit if beyond < -limit else beyond
        strong = self.strong + gain * beyond
        if strong <= 0.0:
            self.strong = 0.0
            return evidence
        self.strong = strong = min(strong, bar.most)
        return evidence if evidence > strong else strong

    def learn(self, bar: Bar) -> None:
        """What is usual for this rank; now and then, while little speaks against it."""
        # Were frames left out that speak against it a little, the usual would come out too small.
        if self.evidence > bar.enough / 2.0 or len(self.past) < 2:
            return
        away = fresh_of(self.past[-1], self.past[-2], bar.likeness) - self.usual
        usual = self.usual + LEARNS * min(max(away, -bar.sigma), bar.sigma)
        self.usual = min(max(usual, -MOST_USUAL), MOST_USUAL)

    def look_closer(self, bar: Bar, least: float) -> float | None:
        """By how much it is slow now; None when it is not."""
        if self.is_slow:
            if self.newest() >= OVER * least:
                return location(list(self.past)[-self._newest_since() :], bar.sigma)
            self.is_slow = False
            self.mild = self.strong = 0.0
            return None
        if self.evidence < bar.enough or len(self.past) < bar.fewest:
            return None
        began = self._began(bar)
        since = list(self.past)[began:]
        if len(since) < bar.fewest:
            return None
        level = location(since, bar.sigma)
        error = max(bar.sigma, self.own_sigma()) * math.sqrt(bar.inflation / len(since))
        if level < least or level < ERRORS * error or _wanes(since, level, bar.sigma):
            return None
        self.is_slow = True
        self.since = self.when[began]
        return level

    def newest(self) -> float:
        """By how much the newest frames lie above the peers'; below 0: it is quicker."""
        return statistics.median(list(self.past)[-NEWEST:]) if self.past else 0.0

    def _newest_since(self) -> int:
        """How many of the newest frames are of the time in which it is slow."""
        frames = sum(first >= self.since[0] for first, _ in self.when)
        return max(min(frames, NEWEST), 1)

    def _began(self, bar: Bar) -> int:
        """From which frame on slow is most likely: where the sums since then are greatest."""
        newest = statistics.median(list(self.past)[-bar.fewest :])
        half, limit = newest / 2.0, max(newest / 2.0, bar.sigma)
        best, began, total = 0.0, len(self.past) - 1, 0.0
        for place in range(len(self.past) - 1, -1, -1):
            total += min(max(self.past[place] - half, -limit), limit)
            if total > best:
                best, began = total, place
        return began

    def own_sigma(self) -> float:
        """A rank may be more restless than its peers; then more is needed to call it slow."""
        sizes = sorted(abs(after - before) for before, after in pairwise(self.past))
        if not sizes:
            return 0.0
        return MAD_TO_SIGMA * sizes[len(sizes) // 2] / math.sqrt(2.0)


def location(values: list[float], sigma: float) -> float:
    """Where most of them lie: a mean in which none counts for more than two sigma from the median
    (Huber's estimate, one step of it)."""
    middle = statistics.median(values)
    low, high = middle - 2.0 * sigma, middle + 2.0 * sigma
    return sum(min(max(value, low), high) for value in values) / len(values)


def _wanes(since: list[float], level: float, sigma: float) -> bool:
    """Whether it is the echo of a very long step, which halves from frame to frame."""
    return statistics.median(since[-3:]) < level / 2.0 - sigma
