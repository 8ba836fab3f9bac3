"""Snapshots in memory: how often they are taken, what a node has of them, who copies whose."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class SnapshotOrder:
    """How often ranks take snapshots. `every_steps` 0: not at all, for `reason`."""

    attempt: int
    epoch: int
    every_steps: int
    reason: str = ""


@dataclass(frozen=True)
class SnapshotReport:
    """What a node has of snapshots. Steps by rank, as strings because JSON's keys are."""

    attempt: int = -1
    """Of the ranks that `wanted` and `taken` speak of."""
    slots: int = 0
    """Slots that each rank of this node has; 0: none (yet)."""
    wants: bool = False
    """Some rank asked for slots."""
    obstacle: str = ""
    """Why there are fewer slots than wished."""
    short_of: str = ""
    """What there is too little of for that: `shared_memory`, `memory`, or `state` where some ranks
    can't copy theirs."""
    copies_fit: bool = False
    """Whether the memory planned for this node has room for copies of another node's snapshots."""
    slot_bytes: int = 0
    """Of all slots and copies of this node."""
    held: dict[str, list[int]] = field(default_factory=dict)
    """rank -> sealed steps in its own slots, newest first."""
    copies: dict[str, list[int]] = field(default_factory=dict)
    """rank of another node -> sealed steps copied here, newest first."""
    newest: int = -1
    """Newest step that this node's ranks know to exist on all ranks; -1: none."""
    newest_sealed_s: float = 0.0
    """When this node's ranks had sealed that one, CLOCK_MONOTONIC of this node; 0: not known."""
    taken: int = 0
    blocked_s: float = 0.0
    """What one snapshot keeps a loop of this node, seconds: the median of the newest ones seen, of
    the slowest rank."""
    copied_for: dict[str, str] = field(default_factory=dict)
    """Identifier of a PeerOrder -> `copied` once this node's ranks hold it, `void` if one can't."""
    copied_step: int = -1
    """The boundary at which they copied it: behind the armed one where gradients waited there."""
    pulled: str = ""
    """Identifier of the PeerOrder whose copies this node has pulled, whole and checked."""
    peer_address: str = ""
    """host:port where other nodes fetch this one's snapshots; empty: nowhere."""
    failure_domain: str = ""


@dataclass(frozen=True)
class PeerOrder:
    """A snapshot that other nodes shall copy. state: `armed`, `complete`, `void`.

    With `peer=sync` it stands for the whole attempt: state `standing`, every snapshot is meant.
    """

    identifier: str
    attempt: int
    epoch: int
    step: int
    state: str
    deadline_s: float
    pulls: dict[str, str] = field(default_factory=dict)
    """node whose ranks' snapshots are copied -> node that pulls them."""
    reason: str = ""
    through: int = -1
    """Newest step of this attempt that every puller has: ranks and pullers keep it meanwhile."""
    failures: int = 0
    """Orders in a row, up to this one, that came to nothing and not for being late."""

    @property
    def came_too_late(self) -> bool:
        """Some rank was past the step when it heard of it: worth another try, further ahead."""
        return self.state == "void" and "no snapshot" in self.reason


@dataclass(frozen=True)
class AttemptKey:
    """Secret of an attempt (hex), with which sidecars prove to each other that they belong."""

    attempt: int
    secret: str = field(repr=False)
