"""What a failure would cost this job by what is left after it, and what other figures would change.

Averages: a failure comes at any moment of an interval alike.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from holdfast_sidecar.config.settings import CheckpointSettings
from holdfast_sidecar.decisions.cluster import Cluster
from holdfast_sidecar.decisions.interval import (
    Cost,
    choose,
    loss_per_failure_s,
    waste,
)
from holdfast_sidecar.decisions.peering import lag_steps
from holdfast_sidecar.decisions.schedule import Schedule, target_s


@dataclass(frozen=True)
class Prospect:
    """Expected loss per failure in seconds; None: that tier is off, or its pace is not known."""

    interval_s: float | None
    lost_s: float | None
    """When only checkpoints are left."""
    lost_to_numbers_s: float | None
    """When numbers went wrong, and only a good checkpoint is trusted."""
    lost_with_snapshots_s: float | None
    """When the node lives: a rank crashed or hung."""
    snapshot_every: int | None
    """Steps; 0: none are taken; None: no job that runs was asked."""
    lost_with_copies_s: float | None
    """When the node is lost."""
    copies_behind: int | None
    """Steps that the loss of a node would cost now; None: there are no copies elsewhere."""
    saving_share: float | None
    """Of wall-clock time."""
    repeating_share: float | None
    """The same when every failure leaves only checkpoints."""


@dataclass(frozen=True)
class WhatIf:
    """The schedule under one changed figure."""

    change: str
    interval_s: float
    waste: float


def look_ahead(schedule: Schedule, cluster: Cluster, settings: CheckpointSettings) -> Prospect:
    """What to expect of the job as it runs now."""
    interval_s, cost, step_s = target_s(schedule, settings), schedule.cost, schedule.step_s
    lost_s = None if interval_s is None or cost is None else loss_per_failure_s(interval_s, cost)
    every = None if cluster.plan is None else 0
    if every is not None and cluster.snapshot is not None:
        every = cluster.snapshot.every_steps
    behind = None if cluster.plan is None else lag_steps(cluster, cluster.plan)
    return Prospect(
        interval_s=interval_s,
        lost_s=lost_s,
        lost_to_numbers_s=None if lost_s is None else lost_s + settings.good_after_s,
        lost_with_snapshots_s=every * step_s / 2 if every and step_s else None,
        snapshot_every=every,
        lost_with_copies_s=None if behind is None or not step_s else (behind + 0.5) * step_s,
        copies_behind=behind,
        saving_share=None if interval_s is None or cost is None else cost.blocked_s / interval_s,
        repeating_share=None if lost_s is None else min(1.0, lost_s / schedule.rate.mtbf_s),
    )


def what_if(schedule: Schedule, settings: CheckpointSettings) -> list[WhatIf]:
    """How the schedule would answer to other figures; empty while nothing was measured."""
    cost, mtbf_s = schedule.cost, schedule.rate.mtbf_s
    if cost is None or settings.every_s > 0 or settings.every_steps > 0:
        return []
    half = dataclasses.replace(cost, blocked_s=cost.blocked_s / 2)
    tenfold = Cost(cost.blocked_s * 10, cost.write_s * 10)
    return [
        _under("failures twice as often", settings, cost, mtbf_s / 2),
        _under("failures ten times as often", settings, cost, mtbf_s / 10),
        _under(
            f"{schedule.ranks * 8} ranks instead of {schedule.ranks}", settings, cost, mtbf_s / 8
        ),
        _under("the loop kept half as long", settings, half, mtbf_s),
        _under("ten times the state on the same storage", settings, tenfold, mtbf_s),
    ]


def _under(change: str, settings: CheckpointSettings, cost: Cost, mtbf_s: float) -> WhatIf:
    interval_s = choose(settings, cost, mtbf_s).target_s
    lost_s = loss_per_failure_s(interval_s, cost)
    return WhatIf(change, interval_s, waste(interval_s, cost.blocked_s, lost_s, mtbf_s))
