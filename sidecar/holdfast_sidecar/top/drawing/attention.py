"""Which ranks and nodes want looking at, and which of several most. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from holdfast_sidecar.export.live.view import LiveView, RankView
from holdfast_sidecar.top.drawing.ramp import level

LOST = "lost"
"""Silence of a rank whose node is lost."""

ENDED_WELL = "finished"
"""Phase of a rank that is gone because it is done."""


@dataclass(frozen=True)
class Attention:
    """What findings point at."""

    acting: frozenset[int | str]
    """Ranks, and machines by their names, about which something is sure enough to act on."""
    told: frozenset[int | str]
    """Those about which anything was found."""
    usual_s: float = 0.0
    """Own work of the rank in the middle; 0: nobody told."""

    def is_urgent(self, rank: RankView) -> bool:
        """Whether this rank is dead, or something is done about it."""
        return is_dead(rank) or rank.rank in self.acting

    def is_due(self, rank: RankView) -> bool:
        """Whether anything at all is said against it."""
        return rank.rank in self.told or rank.slowdown is not None

    def worst(self, ranks: Iterable[RankView]) -> RankView:
        """The one to look at first; the first of those that are all well."""
        return max(ranks, key=self.badness)

    def badness(self, rank: RankView) -> tuple[float, ...]:
        """The higher, the worse. Equal ones keep their order though their times vary a little: what
        is told apart here looks different in the map, too."""
        found = (rank.rank in self.acting) + (rank.rank in self.told)
        own = level(rank.own_s / self.usual_s) if rank.own_s and self.usual_s else 0
        return is_dead(rank), found, bool(rank.silence), rank.slowdown or 0.0, own, -rank.rank


def attention(view: LiveView) -> Attention:
    """What this view's findings point at."""
    told = [(one.node if one.rank is None else one.rank, one.acts) for one in view.findings]
    return Attention(
        acting=frozenset(whom for whom, acts in told if acts),
        told=frozenset(whom for whom, _ in told),
        usual_s=statistics.median([one.own_s for one in view.ranks if one.own_s] or [0.0]),
    )


def is_dead(rank: RankView) -> bool:
    """Whether its process is gone though its work was not done."""
    return not rank.alive and rank.phase != ENDED_WELL


def is_lost(rank: RankView) -> bool:
    """Whether it is gone with its node."""
    return is_dead(rank) and rank.silence == LOST
