"""Who of a role takes long in a frame, and what the job would be quicker without that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from holdfast_sidecar.stragglers.between_bursts import BetweenBursts
from holdfast_sidecar.stragglers.chance import Chance
from holdfast_sidecar.stragglers.even_work import EvenWork, Yardstick
from holdfast_sidecar.stragglers.frame import Frame
from holdfast_sidecar.stragglers.role_pace import RolePace
from holdfast_sidecar.stragglers.signals import SAMPLE, Signals, middle
from holdfast_sidecar.stragglers.step_model import StepModel

MOST_LATE = 4
"""Where more than one rank of so many is late at once, it is nobody's burst; one always may be."""


class Part(NamedTuple):
    """Of a frame, what is one role's."""

    role: str
    ranks: Sequence[int]
    """All of the role."""
    there: Sequence[int]
    """Those of them that told of it."""
    frame: Frame
    model: StepModel

    @property
    def steps(self) -> int:
        """How many it is of."""
        return self.frame.step - self.frame.after_step


class Burst(NamedTuple):
    """One rank's; microseconds of a step, in the mean over the frame."""

    rank: int
    beyond_us: float
    """Than usual."""
    saved_us: float
    """What the job would have been quicker without."""


class Late(NamedTuple):
    """Who is late in a frame."""

    bursts: Sequence[Burst] = ()
    peers: Signals | None = None
    """Of those that are not."""


@dataclass
class RoleBursts:
    """Follows one role."""

    chance: Chance
    usual_us: float = 0.0
    """Own time of its usual step; 0: not known yet."""
    _pace: RolePace = field(default_factory=RolePace)

    def follow(self, part: Part, work: EvenWork, between: BetweenBursts) -> Late:
        """One more frame."""
        lines, ranks = part.frame.lines, part.there
        if len(ranks) < 2:
            return Late()
        some = [lines[rank] for rank in ranks[:: max(1, len(ranks) // SAMPLE)]]
        yardstick = work.yardstick(part.role, some)
        found = self._pace.follow(map(yardstick, some)) if yardstick else None
        if yardstick is None or found is None:
            return Late()
        self.usual_us, limit_us = found
        late = between.follow(part.role, lines, yardstick, self.usual_us, limit_us)
        late |= _beyond(part, yardstick, limit_us)
        if not late or len(late) > max(1, len(ranks) // MOST_LATE):
            return Late()
        peers = middle([line for line in some if line.rank not in late])
        return Late(self._bursts(part, late), peers)

    def _bursts(self, part: Part, late: Mapping[int, float]) -> list[Burst]:
        own, model = part.model.own, part.model
        quick = {rank: own[rank] - us + self.usual_us for rank, us in late.items()}
        saved_us = max(0.0, model.total_us - model.without(quick))
        # Shared out by how long each was late.
        saved_us /= sum(late.values()) - len(late) * self.usual_us
        beyond = ((rank, us - self.usual_us) for rank, us in late.items())
        return [Burst(rank, us, saved_us * us) for rank, us in beyond]


def _beyond(part: Part, yardstick: Yardstick, limit_us: float) -> dict[int, float]:
    """Rank -> what it took, of those that took longer than that also had work been even."""
    own, lines = part.model.own, part.frame.lines
    if max(map(own.__getitem__, part.there)) <= limit_us:
        return {}
    suspects = [lines[rank] for rank in part.there if own[rank] > limit_us]
    return {line.rank: us for line in suspects if (us := yardstick(line)) > limit_us}
