"""One who is slow, beside those who are well: all that a cause of it is told by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from holdfast_sidecar.stragglers import asleep
from holdfast_sidecar.stragglers.frame import Excess
from holdfast_sidecar.stragglers.own_time import PARTS
from holdfast_sidecar.stragglers.signals import Signals
from holdfast_sidecar.stragglers.witness import Witness


@dataclass(frozen=True)
class Case:
    """One slow rank and all that is known of it."""

    excess: Excess
    own: Signals
    peers: Signals | None = None
    """Of those that are well. None: there are none, so that only what is known to be bad counts."""
    witness: Witness = field(default_factory=Witness)

    @property
    def parts_us(self) -> Mapping[str, float]:
        """Part of a step -> what it takes beyond those who are well: where half of a role is slow,
        its middle says nothing."""
        if self.peers is None:
            return self.excess.parts_us
        return {part: self.own.part(part) - self.peers.part(part) for part in PARTS}

    @property
    def excess_us(self) -> float:
        """Beyond its peers', by its work or not."""
        told_us = self.excess.own_us - self.excess.peers_us + self.work_us
        return max(1.0, told_us if self.peers is None else sum(self.parts_us.values()))

    @property
    def work_us(self) -> float:
        """What more work explains of it."""
        share = self.excess.by_work
        return max(0.0, self.excess.peers_us * share / (1 + share)) if share > -1 else 0.0

    def beyond(self, signal: str) -> float:
        """What its signal is beyond that of its peers."""
        mine: float = getattr(self.own, signal)
        theirs: float = 0.0 if self.peers is None else getattr(self.peers, signal)
        return mine - theirs

    def excess_in(self, *parts: str) -> float:
        """What these parts take beyond those of its peers."""
        return sum(max(0.0, self.parts_us.get(part, 0.0)) for part in parts)

    @property
    def is_asleep(self) -> bool:
        """Whether its process was on no CPU for most of it, and it has no device that could have
        worked meanwhile."""
        if not self.witness.is_host_only:
            return False
        return asleep.is_asleep(self.own, self.peers, self.excess_us)

    @property
    def main_part(self) -> str:
        """Where most of it lies."""
        parts = self.parts_us
        return max(parts, key=lambda part: parts[part]) if parts else "other"
