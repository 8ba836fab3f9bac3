"""Something judged wrong: kind, who, since when, how sure, on what evidence."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum


class Kind(str, Enum):
    """What was judged wrong."""

    CRASH = "crash"  # a rank's process is gone
    HANG = "hang"  # no progress, with positive evidence (stopped, or peers wait for it)
    STALL = "stall"  # no progress beyond what the phase's history allows; silence alone
    DATA_STALL = "data_stall"  # the same while waiting for data, by a loader that is at work
    STRAGGLER = "straggler"
    NONFINITE = "nonfinite"  # NaN or Inf in losses or gradients
    SPIKE = "spike"  # losses or gradients far above what is usual
    NODE_LOST = "node_lost"  # told by the leader: nothing is heard of a member any more
    SIDECAR_LOST = "sidecar_lost"  # told by the leader: a member runs on unwatched
    LAUNCHER_LOST = "launcher_lost"
    MEMORY_PRESSURE = "memory_pressure"
    DISK_FULL = "disk_full"
    LINK_DOWN = "link_down"
    STORE_AWAY = "store_away"
    NO_SNAPSHOTS = "no_snapshots"  # memory or state don't allow them; `what` says which
    NO_PEER_COPY = "no_peer_copy"  # snapshots don't get onto another node, or too slowly
    STORAGE_SLOW = "storage_slow"  # a checkpoint takes longer to write than the interval
    PREEMPTED = "preempted"  # a scheduler wants the node back, or the time limit is near
    PROBE_FAILED = "probe_failed"


HARDWARE = frozenset({Kind.LINK_DOWN})
"""Kinds that say a node's own parts are at fault: what it wrote meanwhile is not called good."""


@dataclass(frozen=True)
class Finding:
    """One judgement. `since_unix_s` is the node's wall clock; confidence is 0 to 1."""

    kind: Kind
    node: str
    since_unix_s: float
    confidence: float
    ranks: list[int] = field(default_factory=list)
    evidence: list[str] = field(default_factory=list)
    acts: bool = False
    """Sure enough to end a rank for (declaring and acting are separate)."""
    what: str = ""
    """Which one, where a node has several of what is in trouble: room, interface, probe."""

    @property
    def key(self) -> tuple[str, str, tuple[int, ...], str]:
        """Same key: the same trouble, seen again."""
        return (self.kind.value, self.node, tuple(self.ranks), self.what)
