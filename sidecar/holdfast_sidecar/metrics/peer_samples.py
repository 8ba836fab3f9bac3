"""Copies of snapshots on other nodes: how far behind they are, and what this node did for them."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast_sidecar.checkpoint.replication.fetch import PeerCounts
from holdfast_sidecar.picture import Picture
from holdfast_sidecar.policy.cluster import parse_cluster
from holdfast_sidecar.policy.replication import copied_step, lag_steps
from holdfast_sidecar.records.metric import Sample, Told


def draw_lag(picture: Picture, told: Told) -> Iterator[Sample]:
    """What the loss of a node would cost the job now."""
    if picture.orders.view is None:
        return
    cluster = parse_cluster(picture.orders.view)
    if cluster.plan is None:
        return
    lag = lag_steps(cluster, cluster.plan)
    if lag is None:
        return
    pace_s = max(rank.step_s for rank in cluster.ranks(cluster.plan).values())
    yield from told("peer_copied_step", copied_step(cluster, cluster.plan))
    yield from told("peer_lag_steps", lag)
    yield from told("peer_lag_seconds", lag * pace_s)


def draw_transfers(counts: PeerCounts, told: Told) -> Iterator[Sample]:
    """What this node's sidecar sent and received."""
    yield from told("peer_copies_total", counts.copies)
    yield from told("peer_received_bytes_total", counts.received_bytes)
    yield from told("peer_receive_seconds_total", counts.seconds)
    yield from told("peer_sent_bytes_total", counts.sent_bytes)
    yield from told("peer_failures_total", counts.failures)
    yield from told("peer_refused_callers_total", counts.refused)
