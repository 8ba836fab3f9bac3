"""Who may lead next: whether the leader is gone, whether an epoch was somebody else's, what the
next one takes over, and when nobody of an attempt can be left elsewhere. Pure.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from holdfast_sidecar.policy.cluster import COUNTED_BEATS, Beat, Cluster, Heartbeats
from holdfast_sidecar.policy.formation import of_one_launch
from holdfast_sidecar.policy.outcome import Write
from holdfast_sidecar.policy.start import saw_sidecar_end
from holdfast_sidecar.records.codec import encode
from holdfast_sidecar.records.plan import TERMINAL, Plan
from holdfast_sidecar.records.reports import AgentReport, NodeReport
from holdfast_sidecar.store.protocol import CURRENT, Lease, Section

DESERTED_S = 60.0
"""A node that lives is heard of within this: Sentinel takes half a minute to choose another master,
clients a few seconds to find it."""


def why_gone(
    cluster: Cluster, candidate: str, heartbeats: Heartbeats, timeout_s: float, now: float
) -> str:
    """Why whoever holds the lease can't lead any more, so that it need not be waited out; empty
    while it may.

    Only speed hangs on this judgement: orders carry their epoch, so a leader that was deposed by
    mistake has its writes refused, and follows.
    """
    node, _, incarnation = candidate.rpartition("/")
    report = cluster.nodes.get(node)
    if report is None:
        return ""  # an emptied store: it has not reported anew yet
    if report.incarnation != incarnation:
        return "another sidecar is in its place"
    if saw_sidecar_end(cluster, node):
        return "its launcher saw it end"
    silent_s = heartbeats.still_for(f"node/{node}", now)
    return f"silent for {silent_s:.1f} s" if silent_s >= timeout_s else ""


def is_taken(lease: Lease, others: Iterable[NodeReport], is_new: bool) -> bool:
    """Whether somebody else led in this epoch, or a later one: a store that was emptied or failed
    over may grant it again. What is known only as a number counts against a new lease."""
    for node in others:
        is_same = node.floor_epoch == lease.epoch
        if node.floor_epoch > lease.epoch or (is_same and is_new and not node.floor_leader):
            return True
        if is_same and node.floor_leader not in ("", lease.candidate):
            return True
    return False


def taken_over(cluster: Cluster, epoch: int) -> tuple[Write, ...]:
    """Orders of former leaders, with this one's epoch. As soon as the plan is written under it
    sidecars take any older order for stale, and for all they know there is none."""
    standing = (
        (Section.CHECKPOINT, cluster.checkpoint, cluster.checkpoint_text),
        (Section.SNAPSHOT, cluster.snapshot, cluster.snapshot_text),
        (Section.PEER, cluster.peer, cluster.peer_text),
        (Section.TRACE, cluster.trace, cluster.trace_text),
    )
    return tuple(
        Write(section, CURRENT, encode(dataclasses.replace(order, epoch=epoch)), text)
        for section, order, text in standing
        if order is not None and order.epoch < epoch
    )


class MemberSilence:
    """How long none of an attempt's members was heard of, as one sidecar hears them. It follows
    them whoever leads: who leads next has to know what it heard before."""

    def __init__(self) -> None:
        self._attempt = -1
        self._server = ""
        self._beats: object = None
        self._since = 0.0

    def follow(self, cluster: Cluster, server: str, now: float) -> float:
        """Seconds, on the server that is asked now; of an attempt that is over none."""
        plan = cluster.plan
        if plan is None or plan.state in TERMINAL:
            self._attempt = -1
            return 0.0
        heard = (plan.attempt, server, _beats_of(cluster, plan))
        if heard != (self._attempt, self._server, self._beats):
            self._attempt, self._server, self._beats = heard
            self._since = now
        return now - self._since


def is_deserted(cluster: Cluster, silent_s: float) -> bool:
    """Whether a job was killed as a whole and is started anew, so that nobody is left elsewhere who
    could go on with it: enough newcomers wait, no member was heard of for a minute, and the
    scheduler itself says that it started the launch again.

    Silence alone proves nothing: a sidecar that was started on one side of a partition never heard
    those on the other side, where they may train on.
    """
    plan, newcomers = cluster.plan, cluster.joining()
    if plan is None or silent_s < DESERTED_S or not newcomers:
        return False
    if _beats_of(cluster, plan, alive=True):
        return False
    wanted = of_one_launch(newcomers, ())
    is_again = all(_supersedes(agent, cluster, plan) for agent in wanted)
    return is_again and len(wanted) >= wanted[0].min_nodes


def _supersedes(agent: AgentReport, cluster: Cluster, plan: Plan) -> bool:
    """Whether it is of a newer launch under the scheduler's id that the attempt's members had."""
    before = [
        one
        for member in plan.members
        if (one := cluster.agents.get(member.node)) is not None
        and one.incarnation == member.incarnation
    ]
    return bool(before) and all(
        one.launch == agent.launch != "" and one.launch_number < agent.launch_number
        for one in before
    )


def _beats_of(cluster: Cluster, plan: Plan, alive: bool = False) -> list[tuple[str, int, int]]:
    """Of members whose launcher is still the one of the attempt. alive: only of those that are."""
    return [
        (member.node, agent.beat, node.beat if node is not None and node.launcher_alive else 0)
        for member in plan.members
        if (agent := cluster.agents.get(member.node)) is not None
        and agent.incarnation == member.incarnation
        and (not alive or cluster.is_alive(member.node))
        for node in [cluster.nodes.get(member.node)]
    ]


# Two sidecars, or two launchers, under one node's name: which of them speaks for it. Pure.
#
# Whoever has the node's place in the store keeps it for as long as it lives. Another one takes the
# place of a dead one, waits for one that leaves, and else says who is there and leaves itself.

HANDOVER_S = 5.0
"""So long a sidecar may take to leave: its successor waits for it."""

STOPPED_S = 3.0
"""A heartbeat that was seen to move has to stand still for so long: longer than a busy machine
keeps a process from its turn, and than a lease."""

STOPPED_BEATS = 4.0
"""The same for a launcher where heartbeats are slow: a gap that its judge counts in full is two."""

OTHER = "other"


class DuplicateSidecar(Enum):
    """What the other one is."""

    GONE = "gone"
    UNDECIDED = "undecided"
    STAYS = "stays"


@dataclass
class DuplicateSidecarWatch:
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
    ) -> DuplicateSidecar:
        """What is known by now. Monotonic seconds before the store was asked, and after."""
        beat = Beat(other.incarnation, other.beat)
        if self._first is None or self._first.incarnation != beat.incarnation:
            self._first, self._since_s = beat, answered_at
        self.has_moved = beat != self._first
        self.heartbeats.observe({OTHER: beat}, server, asked_at, answered_at)
        if is_leaving(other):
            return DuplicateSidecar.GONE
        limit_s = max(STOPPED_S, self.timeout_s) if self.has_moved else self.timeout_s
        if self.heartbeats.still_for(OTHER, asked_at) >= limit_s:
            return DuplicateSidecar.GONE
        is_late = self.has_moved and answered_at - self._since_s >= HANDOVER_S
        return DuplicateSidecar.STAYS if is_late else DuplicateSidecar.UNDECIDED


@dataclass
class LauncherHandover:
    """The same for the launcher that has this node's place in the store. None is handed over: a
    successor starts once its predecessor has left, or is dead."""

    heartbeats: Heartbeats
    stopped_s: float = STOPPED_S
    """Silence after which it is dead. A launcher writes its heartbeat where this one looks for it:
    while the store is away neither can, and that counts for nothing."""
    _beat: Beat | None = None
    _met_s: float = 0.0

    def judge(self, other: AgentReport, asked_at: float, answered_at: float) -> DuplicateSidecar:
        """What is known by now. Monotonic seconds before the store was asked, and after."""
        beat = Beat(other.incarnation, other.beat)
        if self._beat is None or self._beat.incarnation != beat.incarnation:
            self._beat, self._met_s = beat, answered_at
        has_moved, self._beat = beat != self._beat, beat
        self.heartbeats.observe({OTHER: beat}, "", asked_at, answered_at)
        if other.state == "left":
            return DuplicateSidecar.GONE
        if self.heartbeats.still_for(OTHER, asked_at) >= self.stopped_s:
            return DuplicateSidecar.GONE
        lives = has_moved and answered_at - self._met_s >= HANDOVER_S
        return DuplicateSidecar.STAYS if lives else DuplicateSidecar.UNDECIDED


def watch_launcher(heartbeat_s: float) -> LauncherHandover:
    """A watch of one that beats so often, by a launcher that looks as often."""
    counted_s = COUNTED_BEATS * heartbeat_s
    stopped_s = max(STOPPED_S, STOPPED_BEATS * heartbeat_s)
    return LauncherHandover(Heartbeats(counted_s, late_after_s=stopped_s), stopped_s)


class LauncherClaim(Protocol):
    """What a sidecar says of its launcher: a NodeReport, or a LocalState."""

    @property
    def launcher_pid(self) -> int:
        """0: it belongs to none."""

    @property
    def launcher_alive(self) -> bool:
        """Whether that one lives."""


def is_leaving(one: LauncherClaim) -> bool:
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
