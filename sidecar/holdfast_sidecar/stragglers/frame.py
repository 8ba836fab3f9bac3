"""The lines of all ranks for the same steps, and one rank's excess over its peers."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import itemgetter
from typing import NamedTuple

from holdfast_sidecar.records.steps import StepLine

LONGEST_US = 3_600_000_000
"""An hour for one step: no step, but a clock that was set."""


class Rare(NamedTuple):
    """What a rank evaluated or saved, microseconds of a step in the mean over all of a frame."""

    lost_us: int
    evaluated_us: int


@dataclass(frozen=True)
class Frame:
    """What all ranks told of the steps after `after_step` up to `step`."""

    after_step: int
    step: int
    lines: Mapping[int, StepLine]
    """rank -> its means over the frame; ranks that told nothing of it, or had no ordinary step in
    it, are left out."""
    rare: Mapping[int, Rare] = field(default_factory=dict)
    """rank -> what it did rarely; of those that did, with or without an ordinary step."""

    def without(self, ranks: Collection[int]) -> Frame:
        """The same, had these told nothing."""
        if not ranks:
            return self
        lines = {rank: line for rank, line in self.lines.items() if rank not in ranks}
        return replace(self, lines=lines)

    @cached_property
    def own_us(self) -> Mapping[int, float]:
        """rank -> its own work in a step; as `StepLine.own_us`, for thousands and several."""
        found = {}
        for rank, line in self.lines.items():
            data, transfer, forward, backward, optimizer, other, waits_seen = _OWN(line)
            own = data + transfer + forward + optimizer + other
            found[rank] = float(own + backward if waits_seen else own)
        return found


_OWN = itemgetter(
    *(
        StepLine._fields.index(name)
        for name in ("data", "transfer", "forward", "backward", "optimizer", "other", "waits_seen")
    )
)


@dataclass(frozen=True)
class Excess:
    """A rank that takes longer than its peers, and since when. Shares are parts of one."""

    rank: int
    role: str
    slowdown: float
    """Own time beyond what its peers' says it should be, by that."""
    confidence: float
    since_step: int
    steps: int
    """Steps that were seen since."""
    own_us: float
    """Its own time, mean of the newest steps."""
    peers_us: float
    """What it would be by its peers' and its own work."""
    parts_us: Mapping[str, float] = field(default_factory=dict)
    """Part of a step -> its own beyond that of its peers (their median), mean of those steps."""
    work: float = 1.0
    """Its work beside its peers': 1.5 is half as much again; 1 where nothing is known of it."""
    by_work: float = 0.0
    """What of its time beyond its peers' more work explains, as a part of theirs."""
    is_by_work_alone: bool = False
    """It was given more, and is as quick with it as its peers would be: no slow rank."""
    is_persistent: bool = False

    @property
    def usual_us(self) -> float:
        """What its own time would be, had it no more to do than its peers and were as quick."""
        return self.peers_us / max(0.1, 1 + self.by_work)
