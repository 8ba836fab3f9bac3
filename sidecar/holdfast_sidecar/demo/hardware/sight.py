"""What Holdfast has recorded of a story so far. Pure: a cluster in, an answer out."""

from __future__ import annotations

import dataclasses

from holdfast_sidecar.demo.hardware.outcome import Done, Seen
from holdfast_sidecar.policy.cluster import Cluster
from holdfast_sidecar.records.checkpoint import LedgerEntry
from holdfast_sidecar.records.findings import Finding
from holdfast_sidecar.records.plan import Incident


def find(cluster: Cluster, done: Done, before: Seen, now_unix_s: float) -> Seen:
    """What is known now; a finding that was seen stays seen."""
    finding = before.finding or _finding(cluster, done)
    return dataclasses.replace(
        before,
        finding=finding,
        found_unix_s=before.found_unix_s or (now_unix_s if finding is not None else 0.0),
        saved=before.saved or _saved(cluster, done),
        incident=_incident(cluster, done),
        plan=cluster.plan,
    )


def is_settled(done: Done, seen: Seen) -> bool:
    """Whether all has come that should, or something that should not."""
    return not missing(done, seen)


def missing(done: Done, seen: Seen) -> str:
    """What is still to come, for people; empty when nothing is waited for any more."""
    story = done.story
    if seen.finding is None:
        return f"{story.fault.value} to be told"
    if story.ends_attempt:
        is_over = seen.incident is not None and seen.incident.recovered_unix_s > 0
        return "" if is_over else f"the job to go on without node {done.node}"
    if story.is_saved and seen.saved is None and seen.incident is None:
        return f"a checkpoint for {story.fault.value}"
    return ""


def is_over(cluster: Cluster, done: Done) -> bool:
    """Whether the node tells of it no more."""
    return _finding(cluster, done) is None


def _finding(cluster: Cluster, done: Done) -> Finding | None:
    node = cluster.nodes.get(done.node)
    found = [] if node is None else node.findings
    return next((one for one in found if one.kind is done.story.finding), None)


def _saved(cluster: Cluster, done: Done) -> LedgerEntry | None:
    """The checkpoint that was made for it."""
    asked = f"{done.story.finding.value}"
    entries = (e for e in cluster.ledger.values() if any(n.startswith(asked) for n in e.answers))
    return next(iter(entries), None)


def _incident(cluster: Cluster, done: Done) -> Incident | None:
    """The incident that ended the attempt in which it was done."""
    found = (i for i in cluster.incidents.values() if i.attempt == done.attempt and i.decided)
    return max(found, key=lambda one: one.detected_unix_s, default=None)
