"""Trouble of a host in which the job is saved while it still can be: which, and once per onset."""

from __future__ import annotations

from collections.abc import Collection

from holdfast_sidecar.decisions.cluster import Cluster
from holdfast_sidecar.findings import Finding, Kind
from holdfast_sidecar.records.plan import Plan

FORETELLING = frozenset(
    {
        Kind.MEMORY_PRESSURE,
        Kind.DISK_FULL,
        Kind.HOST_MEMORY_ERRORS,
        Kind.HOST_HOT,
        Kind.ECC_STORM,
        Kind.GPU_MEMORY_FAILING,
    }
)
"""What may soon end ranks or keep them from being saved, and leaves time to save them now.
Not what keeps a checkpoint itself from being written: storage that stalls, tasks that hang."""

SURELY_FORETELLING = {Kind.LINK_DEGRADED: 0.8, Kind.LINK_FLAPPING: 0.8}
"""Links, from so sure on: one that flaps again and again, or whose errors grow for minutes, is
often lost soon, and takes the attempt with it. One flap is nobody's business."""

STORAGE = "checkpoint"
"""The room that checkpoints fill: another one is no help against that."""


SAVED_S = 60.0
"""The same trouble within a minute of the checkpoint that was made for it is not saved for again:
pressure that comes and goes makes no series of them. Another trouble is, even so soon: a save of
before its onset may lie a whole interval back by the time it ends the ranks."""


def asked_by(cluster: Cluster, plan: Plan, now_unix_s: float, asked: Collection[str] = ()) -> str:
    """A finding for which no checkpoint was ordered yet, by a name for it; empty: there is none.

    What was complete after the onset will do, whatever it was made for. Nothing waits for it: an
    attempt that hardware ends is ended at once. asked: names for which this leader has ordered one
    that it will not try again, whatever became of it.
    """
    entries = [entry for entry in cluster.ledger.values() if entry.attempt == plan.attempt]
    saved_unix_s = max((entry.at_unix_s for entry in entries), default=0.0)
    done = {name for entry in cluster.ledger.values() for name in entry.answers} | set(asked)
    if cluster.checkpoint is not None and not cluster.checkpoint.came_too_late:
        done |= set(cluster.checkpoint.answers)
    lately = {
        _trouble(name)
        for entry in entries
        if now_unix_s - entry.at_unix_s < SAVED_S
        for name in entry.answers
    }
    names = sorted(
        name_of(finding)
        for member in plan.members
        if (node := cluster.nodes.get(member.node)) is not None and cluster.is_alive(member.node)
        for finding in node.findings
        if foretells(finding) and finding.since_unix_s > saved_unix_s
    )
    return next((n for n in names if n not in done and _trouble(n) not in lately), "")


def foretells(finding: Finding) -> bool:
    """Whether the job should be saved because of it."""
    surely_from = SURELY_FORETELLING.get(finding.kind)
    if surely_from is not None:
        return finding.confidence >= surely_from
    return finding.kind in FORETELLING and finding.what != STORAGE


def name_of(finding: Finding) -> str:
    """The same for as long as the trouble lasts; another onset has another name."""
    what = f"-{finding.what}" if finding.what else ""
    return f"{finding.kind.value}{what}:{finding.node}:{finding.since_unix_s:.0f}"


def _trouble(name: str) -> str:
    """The name without its onset."""
    return name.rpartition(":")[0]
