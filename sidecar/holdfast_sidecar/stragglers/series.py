"""One measure of all ranks of a role, frame by frame: their trails, and the noise they share."""

from __future__ import annotations

import math
from collections.abc import Sequence

from holdfast_sidecar.stragglers.bar import Bar
from holdfast_sidecar.stragglers.change import Trail, Verdict
from holdfast_sidecar.stragglers.noise import FEWEST, LOOKS_BACK, Noise

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

NEWEST = 4
"""Frames whose noise is looked at apart before somebody is called slow: they may be restless all of
a sudden, for all ranks."""

NOTICE = 0.25
"""Part of the evidence that suffices, from which on a rank's times are kept apart: what one frame
can bring at most, so that it begins with the first or second slow one."""


class Series:
    """Of one role. caution: see Bar."""

    def __init__(self, caution: float = 0.0) -> None:
        self._caution = caution
        self.trails: dict[int, Trail] = {}
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

    def judge(self, rank: int, least: float, step: int, now_s: float) -> Verdict | None:
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
        return Verdict(level, trail.evidence, since_step, step - since_step + 1, now_s - since_s)

    def _mind_jump(self) -> None:
        """Where the newest frames are far more restless than usual, for all ranks: what was known
        of the noise, and what it made of these frames, counts no more."""
        some = self._here[:: -(-len(self._here) // NOISE_SAMPLE)]
        pasts = [trail.past for rank in some if (trail := self.trails.get(rank)) is not None]
        if not pasts:
            return
        # Of two, what one has too much the other has too little: they tell the same twice.
        tellers = 1 if len(pasts) == 2 else len(pasts)
        looks = max(NEWEST, -(-SURE // tellers))
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

    def _welcome(self, rank: int) -> Trail | None:
        left = self._fresh.pop(rank, -(-WARM_UP_STEPS // self._span))
        if left > 0:
            self._fresh[rank] = left - 1
            return None
        return self.trails.setdefault(rank, Trail())

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
