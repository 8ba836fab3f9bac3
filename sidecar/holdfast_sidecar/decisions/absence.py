"""Which members of the attempt are gone, or run on without a sidecar, as the leader tells it. Pure.

Telling only: what is done about a lost node is decided in `watching`.
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast_sidecar.decisions.cluster import Cluster
from holdfast_sidecar.decisions.liveness import Heartbeats
from holdfast_sidecar.decisions.losses import how_lost
from holdfast_sidecar.findings import Finding, Kind
from holdfast_sidecar.records.plan import TERMINAL, Member

CONFIDENCE = 0.95
"""A node that is only cut off from the store looks the same from here."""


def find_absent(
    cluster: Cluster, heartbeats: Heartbeats, timeout_s: float, now: float, now_unix_s: float
) -> Iterator[Finding]:
    """Members that `cluster.lost` names, then those whose sidecar alone is gone.

    Who is gone is named in the finding, not who tells it.
    """
    plan = cluster.plan
    if plan is None or plan.state in TERMINAL:
        return
    for member in plan.members:
        agent = cluster.agents.get(member.node)
        if agent is None or agent.incarnation != member.incarnation or agent.state == "left":
            continue
        if member.node in cluster.lost:
            silent_s = cluster.lost[member.node]
            why = how_lost(cluster, member.node, silent_s)
            yield _finding(Kind.NODE_LOST, member, now_unix_s - silent_s, why)
        else:
            silent_s = heartbeats.still_for(f"node/{member.node}", now)
            if why := _why_unwatched(cluster, member.node, silent_s, timeout_s):
                yield _finding(Kind.SIDECAR_LOST, member, now_unix_s - silent_s, why)


def saw_sidecar_end(cluster: Cluster, node: str) -> bool:
    """Whether this node's launcher, its parent, says that the sidecar last heard of has ended."""
    agent, report = cluster.agents.get(node), cluster.nodes.get(node)
    return agent is not None and report is not None and agent.ended_sidecar == report.pid != 0


def _why_unwatched(cluster: Cluster, node: str, silent_s: float, timeout_s: float) -> str:
    if saw_sidecar_end(cluster, node):
        return "its launcher saw the sidecar end"
    if node in cluster.nodes and silent_s >= timeout_s:
        return f"nothing was heard of its sidecar for {silent_s:.1f} s"
    return ""


def _finding(kind: Kind, member: Member, since_unix_s: float, why: str) -> Finding:
    ranks = list(member.ranks)
    return Finding(kind, member.node, since_unix_s, CONFIDENCE, ranks, evidence=[why])
