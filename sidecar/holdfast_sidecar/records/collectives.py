"""Where a rank stands in its collectives, as its flight recorder tells: plain records.

Small enough to be reported to all nodes while a rank is under suspicion.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

LOOKED_BACK = 16
"""So many collectives in a row, seen before, say best which one comes next; fewer, if need be."""

RECENTLY = 32
"""Of so many collectives, the latest, it is said whether one came out of turn: a few steps."""


def what_follows(past: Sequence[str]) -> str:
    """What came the last time after as many of the same calls as possible, by their digests.

    Empty: the latest call is new.
    """
    longest, following = 0, ""
    for end in range(len(past) - 1, 0, -1):
        length = 0
        while length < min(end, LOOKED_BACK) and past[end - 1 - length] == past[-1 - length]:
            length += 1
        if length > longest:
            longest, following = length, past[end]
            if length == LOOKED_BACK:
                break
    return following


def out_of_turn(order: Sequence[str]) -> int:
    """How many calls ago another came than the past made one expect, the newest counting 0.

    -1: not among the latest.
    """
    for back in range(min(RECENTLY, len(order))):
        index = len(order) - 1 - back
        if what_follows(order[:index]) not in ("", order[index]):
            return back
    return -1


@dataclass(frozen=True)
class CollectiveCall:
    """A collective as one rank entered it."""

    number: int
    """Counts the group's collectives; the same on every rank that entered the same ones."""
    what: str
    """`all_reduce`, `broadcast`, …"""
    shape: str = ""
    """What all ranks must agree on, `Float x 1024`; empty where they may rightly differ."""

    def __str__(self) -> str:
        shape = f" of {self.shape}" if self.shape else ""
        return f"{self.what}{shape}"


@dataclass(frozen=True)
class CollectiveState:
    """How far a rank got in one group."""

    group: str
    backend: str
    title: str
    """What torch calls the group's purpose: `default_pg`, `mesh_dp`, or `undefined`."""
    entered: int
    """Number of the last collective it entered."""
    completed: int
    pending: list[CollectiveCall] = field(default_factory=list)
    """The oldest of those that it entered and that are not complete, and a few after it."""
    history: str = ""
    """Digests of the latest collectives up to `entered`, DIGEST characters each."""

    @property
    def name(self) -> str:
        """What people may know the group by."""
        return self.title if self.title not in ("", "undefined") else f"group {self.group}"

    @property
    def is_waiting(self) -> bool:
        """Whether it entered one that is not complete."""
        return self.entered > self.completed

    def digest(self, number: int) -> str:
        """That of one collective; empty when it is not known (any more)."""
        back = (self.entered - number + 1) * DIGEST
        return self.history[len(self.history) - back :][:DIGEST] if self._holds(back) else ""

    def _holds(self, back: int) -> bool:
        return 0 < back <= len(self.history)


DIGEST = 4
"""Hexadecimal digits of a digest. One that hides a difference by chance (1 in 65,536) only leaves
a culprit unnamed for the moment; equal calls never differ."""


@dataclass(frozen=True)
class RankTrace:
    """One rank of the attempt."""

    rank: int
    answered: bool = False
    """Whether its flight recorder did; else only its page and its groups are known."""
    groups: dict[str, int] = field(default_factory=dict)
    """Name of each group that it is in -> how many ranks are."""
    standings: list[CollectiveState] = field(default_factory=list)
    is_whole: bool = False
    """Whether the recorder still holds all: a group without a standing then had no collective."""
    messages_to: list[int] = field(default_factory=list)
    """Ranks with which it waits to exchange a message (send, receive)."""
    awaits_message: bool = False
    """Whether it may wait for one of nobody knows whom: it is in a call that communicates, and no
    collective of it is pending. gloo records no messages."""
    out_of_turn: int = -1
    """How many collectives, of whatever group, before the one it waits in another came than the
    past made one expect; -1: not lately."""
    calls_entered: int = 0
    calls_left: int = 0
    """Our own count of collectives called from Python."""
    in_backward: bool = False
    """There DDP communicates where nothing counts it."""
    is_overdue: bool = False
    """Whether it is silent for longer than its phase's past allows."""
    stands: bool = False
    """Whether it has told the same for so long that it is no snapshot of something moving."""
    told_standing: bool = False
    """Whether it was asked after its main thread had last been on a CPU."""
    rests: bool = False
    """Whether, as it told this, it provably did nothing but wait for another rank: what it has not
    entered by then it won't enter before what it waits for is complete."""

    @property
    def waits(self) -> bool:
        """Whether anything that it has started with others is not complete."""
        return bool(self.messages_to) or any(one.is_waiting for one in self.standings)

    def standing(self, group: str, backend: str) -> CollectiveState | None:
        """How far it got in a group; None when that is not known, or nowhere (`is_whole`)."""
        return next(
            (one for one in self.standings if (one.group, one.backend) == (group, backend)), None
        )

    def entered(self, group: str, backend: str) -> int | None:
        """Number of the last collective that it entered there; None when it is not known."""
        if not self.answered:
            return None
        standing = self.standing(group, backend)
        if standing is not None:
            return standing.entered
        return 0 if self.is_whole else None
