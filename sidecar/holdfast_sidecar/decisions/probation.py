"""When a complete checkpoint has proved good: the job ran on from it and stayed well."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast_sidecar.config.settings import CheckpointSettings
from holdfast_sidecar.decisions.cluster import Cluster
from holdfast_sidecar.records.checkpoint import LedgerEntry
from holdfast_sidecar.records.findings import HARDWARE
from holdfast_sidecar.records.plan import Plan
from holdfast_sidecar.records.reports import RankReport


def on_trial(cluster: Cluster, plan: Plan) -> list[LedgerEntry]:
    """Complete checkpoints that this attempt runs on from, oldest first.

    Those it wrote, and those it goes back to. What lies ahead of where it resumed is of a branch
    that was left, and nothing that happens now speaks for it.
    """
    ranks = cluster.ranks(plan)
    if len(ranks) < plan.world_size:
        return []
    resumed = max((rank.resumed_step for rank in ranks.values()), default=0)
    behind = {c.identifier for c in plan.resume if c.tier == "durable" and c.step <= resumed}
    return sorted(
        (
            entry
            for entry in cluster.ledger.values()
            if entry.verdict == "complete"
            and (entry.attempt == plan.attempt or entry.identifier in behind)
        ),
        key=lambda entry: (entry.attempt, entry.step),
    )


def state_of_trial(entry: LedgerEntry, cluster: Cluster, plan: Plan) -> str:
    """What must stay the same for the whole probation; empty while something speaks against it.

    A loss or gradient that was not a number begins it anew, though training went on after it, and
    so does a spike.
    """
    ranks = cluster.ranks(plan).values()
    if len(ranks) < plan.world_size or any(map(_is_ill, ranks)):
        return ""
    if _has_ill_writer(entry, cluster):
        return ""
    seen = sum(r.nonfinite_losses + r.nonfinite_gradients + r.spikes for r in ranks)
    return f"{plan.attempt} {seen}"


def has_passed(
    entry: LedgerEntry,
    ranks: Mapping[int, RankReport],
    well_for_s: float,
    settings: CheckpointSettings,
) -> bool:
    """Whether it has run long and far enough. `well_for_s`: since when its state is the same."""
    if well_for_s < settings.good_after_s:
        return False
    run_on = min(
        (rank.step - max(entry.step, rank.resumed_step) for rank in ranks.values()), default=0
    )
    return run_on >= settings.good_after_steps


def _is_ill(rank: RankReport) -> bool:
    return not rank.is_loss_finite or not rank.is_gradient_finite or rank.spike_onset >= 0


def _has_ill_writer(entry: LedgerEntry, cluster: Cluster) -> bool:
    """Whether a node that wrote it has an open hardware fault: not one that a program made (most
    XIDs), nor one of a part that the job does not use."""
    writers = (cluster.nodes.get(name) for name in entry.nodes)
    return any(
        finding.kind in HARDWARE and finding.remedy.blames_hardware
        for node in writers
        if node is not None
        for finding in node.findings
    )
