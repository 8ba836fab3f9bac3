"""Which ranks and nodes want looking at, and which of several most. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from holdfast_sidecar.live.view import LiveView, RankView

ENDED_WELL = "finished"
"""Phase of a rank that is gone because it is done."""


@dataclass(frozen=True)
class Attention:
    """What findings point at."""

    acting: frozenset[int | str]
    """Ranks, and machines by their names, about which something is sure enough to act on."""
    told: frozenset[int | str]
    """Those about which anything was found."""

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
        """The higher, the worse."""
        found = (rank.rank in self.acting) + (rank.rank in self.told)
        return is_dead(rank), found, rank.slowdown or 0.0, rank.own_s or 0.0, -rank.rank


def attention(view: LiveView) -> Attention:
    """What this view's findings point at."""
    told = [(one.node if one.rank is None else one.rank, one.acts) for one in view.findings]
    return Attention(
        acting=frozenset(whom for whom, acts in told if acts),
        told=frozenset(whom for whom, _ in told),
    )


def is_dead(rank: RankView) -> bool:
    """Whether its process is gone though its work was not done."""
    return not rank.alive and rank.phase != ENDED_WELL
