"""When did a rank become slow, and is it still: one rank's excesses, frame by frame."""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from holdfast_sidecar.performance.stragglers.statistics import (
    FEWEST,
    LOOKS_BACK,
    MAD_TO_SIGMA,
    STRONG,
    Bar,
    Noise,
    fresh_of,
)

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


class SlowVerdict(NamedTuple):
    """It is slow."""

    level: float
    """By so much now, as a part of its peers' time."""
    evidence: float
    since_step: int
    steps: int
    """Since then."""
    lasted_s: float


class ExcessSeries:
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


# One measure of all ranks of a role, frame by frame: their trails, and the noise they share.

WARM_UP_STEPS = 3
"""A rank's first steps allocate, compile and rebuild buckets, each rank in its own time."""

AWAY = 2
"""Frames that a rank misses when it starts anew; one is missed for a step that compiles."""

GAP = 16
"""Frames. Who was away for longer begins anew."""

SLOWLY = 8
"""Frames between two looks at what changes slowly."""

NOISE_SAMPLE = 32
"""Ranks whose differences are used, others each frame: more would make the noise no surer."""

SURE = 2 * FEWEST
"""Differences by which the noise of a few frames is known well enough to say that it jumped."""

SERIES_NEWEST = 4
"""Frames whose noise is looked at apart before somebody is called slow: they may be restless all of
a sudden, for all ranks."""

NOTICE = 0.25
"""Part of the evidence that suffices, from which on a rank's times are kept apart: what one frame
can bring at most, so that it begins with the first or second slow one."""


class RoleSeries:
    """Of one role. caution: see Bar."""

    def __init__(self, caution: float = 0.0) -> None:
        self._caution = caution
        self.trails: dict[int, ExcessSeries] = {}
        self.bar: Bar | None = None
        """What evidence has to pass; None: nothing is known of the noise yet."""
        self._noise = Noise()
        self._fresh: dict[int, int] = {}
        """Rank -> so many of its first frames are still to be left out."""
        self._here: list[int] = []
        """Who was in the newest frame."""
        self._span = 0
        self._job_ranks = 0
        self._turn = 0

    @property
    def sigma(self) -> float:
        """The noise of one frame; 0: not known yet."""
        return self._noise.sigma

    def follow(
        self,
        ranks: Sequence[int],
        excesses: Sequence[float],
        steps: tuple[int, int],
        now_s: float,
        job_ranks: int,
    ) -> list[int]:
        """Take one frame of these first and last steps; the ranks to be looked at more closely."""
        self._job_ranks = job_ranks
        first, span = steps[0], steps[1] - steps[0] + 1
        self._mind_span(span, job_ranks)
        bar = self.bar
        notice = NOTICE * bar.enough if bar else 0.0
        trails, when = self.trails, (first, now_s)
        self._greet(ranks, first)
        fresh = self._fresh
        noticed = []
        for rank, excess in zip(ranks, excesses, strict=True):
            trail = trails.get(rank)
            if trail is None or (fresh and rank in fresh):
                trail = self._welcome(rank)
                if trail is None:
                    continue
            if bar is None:
                trail.remember(excess, when)
            elif trail.take(excess, when, bar) >= notice or trail.is_slow:
                noticed.append(rank)
        self._learn(ranks, job_ranks)
        self._learn_slowly(first)
        return noticed

    def judge(self, rank: int, least: float, step: int, now_s: float) -> SlowVerdict | None:
        """Whether a rank that was noticed is slow, by at least so much."""
        trail = self.trails.get(rank)
        if trail is None or self.bar is None:
            return None
        if trail.evidence >= self.bar.enough and not trail.is_slow:
            self._mind_jump()
        level = trail.look_closer(self.bar, least)
        if level is None:
            return None
        since_step, since_s = trail.since
        return SlowVerdict(
            level, trail.evidence, since_step, step - since_step + 1, now_s - since_s
        )

    def _mind_jump(self) -> None:
        """Where the newest frames are far more restless than usual, for all ranks: what was known
        of the noise, and what it made of these frames, counts no more."""
        some = self._here[:: -(-len(self._here) // NOISE_SAMPLE)]
        pasts = [trail.past for rank in some if (trail := self.trails.get(rank)) is not None]
        if not pasts:
            return
        # Of two, what one has too much the other has too little: they tell the same twice.
        tellers = 1 if len(pasts) == 2 else len(pasts)
        looks = max(SERIES_NEWEST, -(-SURE // tellers))
        newest = [list(past)[-looks - 2 :] for past in pasts if len(past) >= looks + 2]
        if not self._noise.has_jumped(newest):
            return
        self._raise_bar(self._job_ranks)
        for trail in self.trails.values():
            if not trail.is_slow:
                trail.mild = trail.strong = 0.0

    def newest(self, rank: int) -> float:
        """By how much its newest frames lie above its peers'; below 0: it is quicker."""
        trail = self.trails.get(rank)
        return trail.newest() if trail else 0.0

    def _mind_span(self, span: int, job_ranks: int) -> None:
        before, self._span = self._span, span
        if before and span != before:
            self._noise.stretch(span / before)
            if self.bar is not None:
                self._raise_bar(job_ranks)

    def _welcome(self, rank: int) -> ExcessSeries | None:
        left = self._fresh.pop(rank, -(-WARM_UP_STEPS // self._span))
        if left > 0:
            self._fresh[rank] = left - 1
            return None
        return self.trails.setdefault(rank, ExcessSeries())

    def _greet(self, ranks: Sequence[int], first: int) -> None:
        """Who is back after two frames or more may have started anew."""
        if ranks == self._here:
            return
        for rank in set(ranks).difference(self._here):
            trail = self.trails.get(rank)
            if trail is not None and trail.when[-1][0] <= first - (AWAY + 1) * self._span:
                self._fresh[rank] = -(-WARM_UP_STEPS // self._span)
        self._here = list(ranks)

    def _learn(self, ranks: Sequence[int], job_ranks: int) -> None:
        step = -(-len(ranks) // NOISE_SAMPLE)
        self._turn = (self._turn + 1) % step
        trails = [self.trails.get(rank) for rank in ranks[self._turn :: step]]
        known = [trail for trail in trails if trail is not None and len(trail.past) >= LOOKS_BACK]
        enough = 0.75 * self.bar.enough if self.bar else math.inf
        healthy = [trail.past for trail in known if trail.evidence < enough]
        if self._noise.take([trail.past for trail in known], healthy):
            self._raise_bar(job_ranks)

    def _raise_bar(self, job_ranks: int) -> None:
        noise, is_first = self._noise, self.bar is None
        self.bar = Bar.of(
            noise.sigma, noise.likeness, job_ranks, noise.healthy, self._span, self._caution
        )
        if is_first:
            # Steps of a minute are too dear to wait for as many again.
            for trail in self.trails.values():
                trail.take_again(self.bar)

    def _learn_slowly(self, first: int) -> None:
        """Every few frames: what is usual for each rank, and who left."""
        if first // self._span % SLOWLY:
            return
        oldest = first - GAP * self._span
        for rank in [r for r, trail in self.trails.items() if trail.when[-1][0] < oldest]:
            del self.trails[rank]
        if self.bar is not None:
            for trail in self.trails.values():
                trail.learn(self.bar)
