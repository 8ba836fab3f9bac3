"""Steps in a row in which a rank took longer than it and its peers usually do: one spell. A garbage
collection makes one of a single step, a neighbour's batch job one of sixty.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import Enum

from holdfast_sidecar.stragglers.signals import Signals

KEPT = 24
"""Of a rank: a mean over so many is within a fifth of what it costs however irregularly they come,
and with thousands of ranks of which each has its hiccups more would fill the memory."""

WITHIN_STEPS = 1 << 14
"""What is longer ago says nothing of today: at 50 ms a step a quarter of an hour."""


class Kind(Enum):
    """What the time of a spell goes into."""

    WORK = "work"
    EVALUATING = "evaluating"
    SAVING = "saving"


@dataclass(slots=True)
class Spell:
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

    kind: Kind
    role: str
    seen: deque[Spell] = field(default_factory=lambda: deque(maxlen=KEPT))
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

    def grow(self, frame_spell: Spell, own: Signals | None, peers: Signals | None) -> Spell:
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
