"""Who may lead next: whether the leader is gone, whether an epoch was somebody else's, what the
next one takes over, and when nobody of an attempt can be left elsewhere. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from holdfast_sidecar.decisions.absence import saw_sidecar_end
from holdfast_sidecar.decisions.cluster import Cluster
from holdfast_sidecar.decisions.formation import of_one_launch
from holdfast_sidecar.decisions.liveness import Heartbeats
from holdfast_sidecar.decisions.outcome import Write
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
