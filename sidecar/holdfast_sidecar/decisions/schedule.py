"""When checkpoints are due by this job's own figures: what one costs, and how often it fails."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from holdfast_sidecar.config.settings import CheckpointSettings
from holdfast_sidecar.decisions.cluster import Cluster
from holdfast_sidecar.decisions.failure_rate import FailureRate, judge_failure_rate
from holdfast_sidecar.decisions.interval import Cost, Interval, choose
from holdfast_sidecar.decisions.restart import PLANNED
from holdfast_sidecar.records.checkpoint import LedgerEntry
from holdfast_sidecar.records.plan import WITHHELD

MEASURED = 3
"""The newest checkpoints that a cost is the median of: one odd write decides nothing."""


@dataclass(frozen=True)
class Schedule:
    """The interval, and what it was worked out from."""

    interval: Interval
    cost: Cost | None
    rate: FailureRate
    ranks: int
    failures: int
    """Of this run, as far as is known."""
    step_s: float
    """Pace of the slowest rank; 0: not known."""


def work_out(cluster: Cluster, settings: CheckpointSettings, now_unix_s: float) -> Schedule:
    """The schedule of a job as its leader sees it."""
    plan = cluster.plan
    began_unix_s = 0.0 if plan is None else plan.began_unix_s
    failures = sorted(
        incident.detected_unix_s
        for incident in cluster.incidents.values()
        if incident.cause not in PLANNED
        and incident.decided not in WITHHELD
        and incident.detected_unix_s >= began_unix_s > 0
    )
    cost = cost_of(cluster.ledger.values())
    ranks = count_ranks(cluster)
    rate = judge_failure_rate(ranks, began_unix_s, failures, now_unix_s)
    running = {} if plan is None else cluster.ranks(plan)
    return Schedule(
        interval=choose(settings, cost, rate.mtbf_s),
        cost=cost,
        rate=rate,
        ranks=ranks,
        failures=len(failures),
        step_s=max((rank.step_s for rank in running.values()), default=0.0),
    )


def target_s(schedule: Schedule, settings: CheckpointSettings) -> float | None:
    """The interval aimed at; None where it is counted in steps and their pace is not known."""
    if settings.every_steps > 0:
        return settings.every_steps * schedule.step_s or None
    return schedule.interval.target_s


def cost_of(ledger: Iterable[LedgerEntry]) -> Cost | None:
    """What the newest checkpoints cost; None when none was measured."""
    measured = sorted((e for e in ledger if e.write_s > 0), key=lambda e: e.at_unix_s)[-MEASURED:]
    if not measured:
        return None
    return Cost(
        blocked_s=statistics.median(entry.blocked_s for entry in measured),
        write_s=statistics.median(entry.write_s for entry in measured),
    )


def count_ranks(cluster: Cluster) -> int:
    """Ranks of the plan; of the newest checkpoint when there is none; else 1."""
    if cluster.plan is not None and cluster.plan.world_size:
        return cluster.plan.world_size
    newest = max(cluster.ledger.values(), key=lambda entry: entry.at_unix_s, default=None)
    return 1 if newest is None else max(newest.world_size, 1)
