"""Who may lead next: whether the leader is gone, and whether an epoch was somebody else's. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast_sidecar.coordination.store import Lease
from holdfast_sidecar.decisions.absence import saw_sidecar_end
from holdfast_sidecar.decisions.cluster import Cluster
from holdfast_sidecar.decisions.liveness import Heartbeats
from holdfast_sidecar.records.node import NodeReport


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
