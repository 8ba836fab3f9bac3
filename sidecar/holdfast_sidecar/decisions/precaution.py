"""Trouble of a host in which the job is saved while it still can be: which, and once per onset."""

from __future__ import annotations

from collections.abc import Collection

from holdfast_sidecar.coordination.reports import Plan
from holdfast_sidecar.decisions.cluster import Cluster
from holdfast_sidecar.findings import Finding, Kind

FORETELLING = frozenset(
    {Kind.MEMORY_PRESSURE, Kind.DISK_FULL, Kind.HOST_MEMORY_ERRORS, Kind.HOST_HOT}
)
"""What may soon end ranks or keep them from being saved, and leaves time to save them now.
Not what keeps a checkpoint itself from being written: storage that stalls, tasks that hang."""

STORAGE = "checkpoint"
"""The room that checkpoints fill: another one is no help against that."""


SAVED_S = 60.0
"""What was saved within a minute is saved: pressure that comes and goes makes no series of them."""


def asked_by(cluster: Cluster, plan: Plan, now_unix_s: float, asked: Collection[str] = ()) -> str:
    """A finding for which no checkpoint was ordered yet, by a name for it; empty: there is none.

    asked: names for which this leader has ordered one, whatever became of it.
    """
    saved = (entry.at_unix_s for entry in cluster.ledger.values() if entry.attempt == plan.attempt)
    if now_unix_s - max(saved, default=0.0) < SAVED_S:
        return ""
    done = {name for entry in cluster.ledger.values() for name in entry.answers} | set(asked)
    if cluster.checkpoint is not None:
        done |= set(cluster.checkpoint.answers)
    names = sorted(
        name_of(finding)
        for member in plan.members
        if (node := cluster.nodes.get(member.node)) is not None and cluster.is_alive(member.node)
        for finding in node.findings
        if foretells(finding)
    )
    return next((name for name in names if name not in done), "")


def foretells(finding: Finding) -> bool:
    """Whether the job should be saved because of it."""
    return finding.kind in FORETELLING and finding.what != STORAGE


def name_of(finding: Finding) -> str:
    """The same for as long as the trouble lasts; another onset has another name."""
    what = f"-{finding.what}" if finding.what else ""
    return f"{finding.kind.value}{what}:{finding.node}:{finding.since_unix_s:.0f}"
