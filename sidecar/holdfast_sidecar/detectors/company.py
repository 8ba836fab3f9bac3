"""What the other ranks of the attempt do while one of them is silent."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.page import Phase
from holdfast_sidecar.observation import PeerRank, RankHistory, Ranks

WAITING_FOR_S = 1.0
"""A peer in a collective for less than this is only passing through."""

WAITING = frozenset({Phase.BACKWARD, Phase.COMMUNICATING})
"""Where a rank waits for others: DDP's reducer communicates inside the backward pass."""

_WAITING_NAMES = frozenset(phase.name.lower() for phase in WAITING)


@dataclass(frozen=True)
class Company:
    """How many of the others do what, as far as this node knows."""

    known: int
    ended: int
    waiting: int
    stuck: int
    """Neither waiting nor ended, and as silent as the rank that is judged."""

    @property
    def all_wait(self) -> bool:
        """Whether someone waits and everybody else waits, is stuck as well, or has ended."""
        return self.waiting > 0 and self.waiting + self.stuck + self.ended == self.known


def company_of(history: RankHistory, ranks: Ranks, age_s: float) -> Company:
    """What the other ranks do while this one has been silent for `age_s` seconds."""
    peers = _others(history, ranks)
    going = [peer for peer in peers if not peer.has_ended]
    return Company(
        known=len(peers),
        ended=len(peers) - len(going),
        waiting=sum(_waits(p) and p.phase_age_s >= WAITING_FOR_S for p in going),
        stuck=sum(not _waits(p) and not p.is_busy and p.phase_age_s >= age_s / 2 for p in going),
    )


CONTINUED_WITHIN_S = 10.0
"""Who continues what was suspended does so process by process, node by node."""


def is_suspended(history: RankHistory, ranks: Ranks) -> bool:
    """Whether all other ranks of its node are stopped as well, or were just now: that is no fault
    of a rank, but somebody's wish. Where it is alone on its node, all of the job have to be."""
    others = [peer for peer in _others(history, ranks) if not peer.has_ended]
    here = [peer for peer in others if peer.rank in ranks.local]
    if not here and len(_others(history, ranks)) + 1 < ranks.world_size:
        return False  # of some it is not known
    return all(peer.stopped_ago_s < CONTINUED_WITHIN_S for peer in here or others)


def others_are_behind(history: RankHistory, ranks: Ranks) -> bool:
    """Whether some rank that is still going has not arrived where this one waits."""
    return any(not _waits(peer) and not peer.has_ended for peer in _others(history, ranks))


def waits_for_busy(history: RankHistory, ranks: Ranks) -> bool:
    """Whether it waits, and some rank that has not arrived there is busy, as its script says."""
    if history.look.phase not in WAITING:
        return False
    behind = (p for p in _others(history, ranks) if not _waits(p) and not p.has_ended)
    return any(peer.is_busy for peer in behind)


def _others(history: RankHistory, ranks: Ranks) -> list[PeerRank]:
    rank, now_s = history.look.rank, history.look.at_s
    here = [_as_peer(h, now_s) for n, h in ranks.local.items() if n != rank]
    return here + [peer for n, peer in ranks.peers.items() if n not in ranks.local]


def _as_peer(history: RankHistory, now_s: float) -> PeerRank:
    look = history.look
    age_s = 0.0 if look.has_died else now_s - look.moved_s
    phase = look.phase.name.lower()
    return PeerRank(
        look.rank,
        look.step,
        phase,
        age_s,
        history.has_ended_well,
        history.stopped_ago_s,
        bool(look.busy),
    )


def _waits(peer: PeerRank) -> bool:
    return peer.phase in _WAITING_NAMES
