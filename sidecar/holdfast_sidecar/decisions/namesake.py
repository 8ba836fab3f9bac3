"""Two sidecars, or two launchers, under one node's name: which of them speaks for it. Pure.

Whoever has the node's place in the store keeps it for as long as it lives. Another one takes the
place of a dead one, waits for one that leaves, and else says who is there and leaves itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from holdfast_sidecar.decisions.liveness import COUNTED_BEATS, Beat, Heartbeats
from holdfast_sidecar.records.reports import AgentReport, NodeReport

HANDOVER_S = 5.0
"""So long a sidecar may take to leave: its successor waits for it."""

STOPPED_S = 3.0
"""A heartbeat that was seen to move has to stand still for so long: longer than a busy machine
keeps a process from its turn, and than a lease."""

STOPPED_BEATS = 4.0
"""The same for a launcher where heartbeats are slow: a gap that its judge counts in full is two."""

OTHER = "other"


class Namesake(Enum):
    """What the other one is."""

    GONE = "gone"
    UNDECIDED = "undecided"
    STAYS = "stays"


@dataclass
class NamesakeWatch:
    """Looks at the one that has this node's place in the store, again and again."""

    heartbeats: Heartbeats
    timeout_s: float
    """Silence after which a node is lost."""
    _first: Beat | None = field(default=None)
    _since_s: float = 0.0
    has_moved: bool = False
    """Whether its heartbeat did while it was looked at: it lives, or did a moment ago."""

    def judge(
        self, other: NodeReport, server: str, asked_at: float, answered_at: float
    ) -> Namesake:
        """What is known by now. Monotonic seconds before the store was asked, and after."""
        beat = Beat(other.incarnation, other.beat)
        if self._first is None or self._first.incarnation != beat.incarnation:
            self._first, self._since_s = beat, answered_at
        self.has_moved = beat != self._first
        self.heartbeats.observe({OTHER: beat}, server, asked_at, answered_at)
        if is_parting(other):
            return Namesake.GONE
        limit_s = max(STOPPED_S, self.timeout_s) if self.has_moved else self.timeout_s
        if self.heartbeats.still_for(OTHER, asked_at) >= limit_s:
            return Namesake.GONE
        is_late = self.has_moved and answered_at - self._since_s >= HANDOVER_S
        return Namesake.STAYS if is_late else Namesake.UNDECIDED


@dataclass
class LauncherWatch:
    """The same for the launcher that has this node's place in the store. None is handed over: a
    successor starts once its predecessor has left, or is dead."""

    heartbeats: Heartbeats
    stopped_s: float = STOPPED_S
    """Silence after which it is dead. A launcher writes its heartbeat where this one looks for it:
    while the store is away neither can, and that counts for nothing."""
    _beat: Beat | None = None
    _met_s: float = 0.0

    def judge(self, other: AgentReport, asked_at: float, answered_at: float) -> Namesake:
        """What is known by now. Monotonic seconds before the store was asked, and after."""
        beat = Beat(other.incarnation, other.beat)
        if self._beat is None or self._beat.incarnation != beat.incarnation:
            self._beat, self._met_s = beat, answered_at
        has_moved, self._beat = beat != self._beat, beat
        self.heartbeats.observe({OTHER: beat}, "", asked_at, answered_at)
        if other.state == "left":
            return Namesake.GONE
        if self.heartbeats.still_for(OTHER, asked_at) >= self.stopped_s:
            return Namesake.GONE
        lives = has_moved and answered_at - self._met_s >= HANDOVER_S
        return Namesake.STAYS if lives else Namesake.UNDECIDED


def watch_launcher(heartbeat_s: float) -> LauncherWatch:
    """A watch of one that beats so often, by a launcher that looks as often."""
    counted_s = COUNTED_BEATS * heartbeat_s
    stopped_s = max(STOPPED_S, STOPPED_BEATS * heartbeat_s)
    return LauncherWatch(Heartbeats(counted_s, late_after_s=stopped_s), stopped_s)


class Watching(Protocol):
    """What a sidecar says of its launcher: a NodeReport, or a LocalState."""

    @property
    def launcher_pid(self) -> int:
        """0: it belongs to none."""

    @property
    def launcher_alive(self) -> bool:
        """Whether that one lives."""


def is_parting(one: Watching) -> bool:
    """Whether it only outlives its launcher for a while: a living launcher's own comes first."""
    return bool(one.launcher_pid) and not one.launcher_alive


def who_watches(other: NodeReport, job: str, boot: str) -> str:
    """The one that is there, in words. boot: of the machine on which that is said."""
    is_here = bool(boot) and other.boot == boot
    named = f" that is called {other.host!r}" if other.host else ""
    where = "this machine" if is_here else f"another machine{named}"
    watched = f"node {other.node!r} of job {job!r}" if job else f"node {other.node!r}"
    return f"another sidecar watches {watched}, on {where}, pid {other.pid}"


def refusal(other: NodeReport, job: str, boot: str) -> str:
    """Why a second one may not watch under this name, and what to do, in a line."""
    return f"{who_watches(other, job, boot)}: end that one first, or name this one with --node"
