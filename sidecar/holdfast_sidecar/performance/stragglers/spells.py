"""Steps in a row in which a rank took longer than it and its peers usually do: one spell. A garbage
collection makes one of a single step, a neighbour's batch job one of sixty.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum

from holdfast_sidecar.performance.stragglers.signals import Signals

KEPT = 24
"""Of a rank: a mean over so many is within a fifth of what it costs however irregularly they come,
and with thousands of ranks of which each has its hiccups more would fill the memory."""

WITHIN_STEPS = 1 << 14
"""What is longer ago says nothing of today: at 50 ms a step a quarter of an hour."""


class SpellKind(Enum):
    """What the time of a spell goes into."""

    WORK = "work"
    EVALUATING = "evaluating"
    SAVING = "saving"


@dataclass(slots=True)
class SlowSpell:
    """Sums over its steps, microseconds."""

    rank: int
    after_step: int
    """It began with the next one."""
    step: int
    """Its last one."""
    began_us: float
    """What the job had taken by then, since it is watched."""
    usual_us: float
    """Own time of one of its role's usual steps."""
    beyond_us: float = 0.0
    """What the rank took beyond that."""
    saved_us: float = 0.0
    """What the job would have been quicker without."""
    untold_us: float = 0.0
    """The same, as far as it was put down to nobody."""
    frames: int = 1

    @property
    def steps(self) -> int:
        """How many there are."""
        return self.step - self.after_step

    @property
    def size(self) -> float:
        """What it took beyond, in usual steps."""
        return self.beyond_us / max(1.0, self.usual_us)


BREAK = 8
"""Of a spell, the part for which it may be interrupted: where its peers stumble in one of sixty
steps, they hide it."""

NEWEST = 16
"""Frames of spells of which signals are the mean, the newer the heavier once there are more."""


@dataclass(slots=True)
class Spells:
    """Those of one rank and kind."""

    kind: SpellKind
    role: str
    seen: deque[SlowSpell] = field(default_factory=lambda: deque(maxlen=KEPT))
    own: Signals | None = None
    peers: Signals | None = None
    frames: int = 0
    """Of which signals are the mean."""

    def forget(self, step: int) -> None:
        """What is too long ago."""
        while self.seen and self.seen[0].step <= step - WITHIN_STEPS:
            self.seen.popleft()

    def settle(self, since_step: int) -> float:
        """What they cost from then on and was put down to nobody, microseconds; once."""
        since = [spell for spell in self.seen if spell.step >= since_step]
        owed_us = sum(spell.untold_us for spell in since)
        for spell in since:
            spell.untold_us = 0.0
        return owed_us

    def grow(self, frame_spell: SlowSpell, own: Signals | None, peers: Signals | None) -> SlowSpell:
        """One more frame of it: of the spell that goes on, or of a new one."""
        newest = self.seen[-1] if self.seen else None
        if newest is not None and frame_spell.after_step - newest.step <= newest.steps // BREAK:
            newest.step = frame_spell.step
            newest.frames += 1
            newest.beyond_us += frame_spell.beyond_us
            newest.saved_us += frame_spell.saved_us
            newest.untold_us += frame_spell.untold_us
        else:
            newest = frame_spell
            self.seen.append(newest)
        self.frames = min(NEWEST, self.frames + 1)
        self.own = _mean(self.own, own, self.frames)
        self.peers = _mean(self.peers, peers, self.frames)
        return newest


def _mean(before: Signals | None, now: Signals | None, frames: int) -> Signals | None:
    if before is None or now is None:
        return now or before
    return Signals(*(b + (n - b) / frames for b, n in zip(before, now, strict=True)))


# Whether a rank's long steps may be chance: all ranks have hiccups, some more than others.
#
# As many are asked for as chance would hardly ever give, by how often steps of that size strike the
# rank's peers, and never less often than healthy ranks have them anyway.

HICCUPS = 0.004
"""Of healthy ranks' steps, those that take as long again: twice what a quiet machine has."""

RARER = 1.5
"""The power by which hiccups of some usual steps are rarer than those of one: they have no mean
size, as it were, but the long ones are few."""

SELDOM = 1e-5
"""Of all that is asked of all ranks at once, so much may be chance: a job is asked some times a
minute, and costs that are worth a word are asked for besides."""

CHANCES_KEPT = 512
"""Of a role's newest spells: forty frames of four thousand healthy ranks, hours of eight."""

FEWEST = 3
"""Of a size: less is no habit."""

BESIDE = 3.0
"""Times what the middle one of its peers loses: where most do the same, it is what they do."""


@dataclass
class Chance:
    """Of one role: what its ranks' spells are like."""

    since_step: int = 0
    """From which on all of them are known."""
    _newest: deque[SlowSpell] = field(default_factory=lambda: deque(maxlen=CHANCES_KEPT))

    def note(self, spell: SlowSpell) -> None:
        """A new one, which may grow later."""
        if len(self._newest) == CHANCES_KEPT:
            self.since_step = self._newest[0].step
        self._newest.append(spell)

    def explains(self, spells: Sequence[SlowSpell], ranks: int, judged: int) -> bool:
        """Whether these spells of one rank, the oldest first, may be by chance; of so many ranks of
        its role, and so many that are judged."""
        others = [one for one in self._newest if one.rank != spells[0].rank]
        if self._is_usual(spells, others, ranks):
            return True
        # The first one is where counting began: what matters is that more came after it.
        sizes = sorted(one.size for one in spells[1:])
        asked = {sizes[-FEWEST], sizes[len(sizes) // 2], sizes[0]}
        likelihood = min(self._likelihood(spells, others, ranks, size) for size in asked)
        return likelihood * len(asked) * judged > SELDOM

    def _likelihood(
        self, spells: Sequence[SlowSpell], others: Sequence[SlowSpell], ranks: int, size: float
    ) -> float:
        """That so many spells of that size come so soon after one another."""
        times = sum(one.size >= size for one in spells[1:])
        if times < FEWEST:
            return 1.0
        rarer = min(1.0, size**-RARER)
        first, step = spells[0].step, spells[-1].step
        large = [one for one in others if one.size >= size]
        lately = sum(one.step > first for one in large) / _exposure(step - first, ranks)
        ever = (len(large) + rarer) / _exposure(step - self.since_step, ranks)
        return at_least(times, max(lately, ever, HICCUPS * rarer) * (step - first))

    def _is_usual(
        self, spells: Sequence[SlowSpell], others: Sequence[SlowSpell], ranks: int
    ) -> bool:
        mine = sum(spell.beyond_us for spell in spells[1:])
        sums: dict[int, float] = {}
        for one in (one for one in others if one.step > spells[0].step):
            sums[one.rank] = sums.get(one.rank, 0.0) + one.beyond_us
        theirs = sorted(_padded(sums, ranks - 1))
        return bool(theirs) and BESIDE * theirs[(len(theirs) - 1) // 2] > mine


def _padded(sums: dict[int, float], ranks: int) -> Iterator[float]:
    yield from sums.values()
    yield from (0.0 for _ in range(ranks - len(sums)))


def _exposure(steps: int, ranks: int) -> float:
    """Steps of other ranks, in which they might have had some."""
    return max(1.0, float((ranks - 1) * steps))


def at_least(times: int, expected: float) -> float:
    """The chance of so many of a kind that comes so often by itself (Poisson), from above."""
    if times <= expected:
        return 1.0
    if expected <= 0:
        return 0.0
    log = times * math.log(expected) - expected - math.lgamma(times + 1)
    # The terms that follow shrink by this or more each.
    return min(1.0, math.exp(log) / (1.0 - expected / (times + 1)))
