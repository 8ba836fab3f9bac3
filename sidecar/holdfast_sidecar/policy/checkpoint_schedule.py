"""How far apart checkpoints should lie: Young's and Daly's optimum, within bounds.

delta is what a checkpoint keeps the loop (seconds), M the mean time between failures of the whole
job per wall clock. Too often costs delta each time, too seldom half an interval at each failure.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from holdfast_sidecar.config.settings import CheckpointSettings, SnapshotSettings
from holdfast_sidecar.policy.budget import PLANNED
from holdfast_sidecar.policy.cluster import Cluster
from holdfast_sidecar.policy.replication import lag_steps
from holdfast_sidecar.records.checkpoint import LedgerEntry, SnapshotOrder, SnapshotReport
from holdfast_sidecar.records.plan import WITHHELD, Plan
from holdfast_sidecar.records.reports import NodeReport, RankReport

WRITE_FACTOR = 1.2
"""A write must end before the next begins; storage that others use is not always equally fast."""


@dataclass(frozen=True)
class CheckpointCost:
    """What one checkpoint was measured to take, seconds."""

    blocked_s: float
    """The loop stood still."""
    write_s: float
    """From there until all was written and hashed."""


@dataclass(frozen=True)
class Interval:
    """How often to save, and why so. Times in seconds."""

    target_s: float
    young_s: float | None
    """None: nothing was measured yet."""
    daly_s: float | None
    bound: str
    """What decided: `optimum`, `least_every_s`, `most_every_s`, `write` (it takes so long),
    `every_s` (the user) or `unmeasured`."""


def young_s(blocked_s: float, mtbf_s: float) -> float:
    """Young's optimum, sqrt(2 delta M)."""
    return math.sqrt(2 * blocked_s * mtbf_s)


def daly_s(blocked_s: float, mtbf_s: float) -> float:
    """Daly's optimum of higher order; M itself where a checkpoint costs as much as two failures."""
    if blocked_s >= 2 * mtbf_s:
        return mtbf_s
    part = blocked_s / (2 * mtbf_s)
    return young_s(blocked_s, mtbf_s) * (1 + math.sqrt(part) / 3 + part / 9) - blocked_s


def choose(settings: CheckpointSettings, cost: CheckpointCost | None, mtbf_s: float) -> Interval:
    """The interval by time. A user's own one stands as it is."""
    young = None if cost is None else young_s(cost.blocked_s, mtbf_s)
    daly = None if cost is None else daly_s(cost.blocked_s, mtbf_s)
    if settings.every_s > 0:
        return Interval(settings.every_s, young, daly, "every_s")
    if cost is None or daly is None:
        # The first one soon: it is what the others are reckoned from.
        return Interval(settings.least_every_s, young, daly, "unmeasured")
    target_s, bound = daly, "optimum"
    if target_s > settings.most_every_s:
        target_s, bound = settings.most_every_s, "most_every_s"
    if target_s < settings.least_every_s:
        target_s, bound = settings.least_every_s, "least_every_s"
    if target_s < WRITE_FACTOR * cost.write_s:
        target_s, bound = WRITE_FACTOR * cost.write_s, "write"
    return Interval(target_s, young, daly, bound)


def loss_per_failure_s(interval_s: float, cost: CheckpointCost) -> float:
    """Work lost on average when only checkpoints are left: half an interval, and what was still
    being written."""
    return interval_s / 2 + cost.write_s


def waste(interval_s: float, blocked_s: float, lost_s: float, mtbf_s: float) -> float:
    """Share of wall-clock time that saving and doing again take together."""
    return min(1.0, blocked_s / interval_s + lost_s / mtbf_s)


# How often this job fails: what is known of others like it, corrected by its own history.
#
# A Gamma prior on failures per rank and day, updated by the job's own failures and uptime. Failures
# come in kinds that differ by orders of magnitude (a script's own bug, a bad node), so a prior that
# the job's own failures contradict is dropped, and the last day counts for itself.

DAY_S = 86400.0

PRIOR_FAILURES = 1.0
PRIOR_RANK_DAYS = 2111.0
"""Llama 3: 419 unexpected interruptions in 54 days on 16,384 GPUs, one per 2,111 GPU-days. Worth
one failure, so that a few of the job's own outweigh it. Nothing as good is published for training
on CPUs: a rank counts the same there."""

CONTRADICTED = 0.01
"""So many failures would be seen in fewer than one of a hundred jobs that are as the prior says."""

OWN_PRIOR = 0.5
"""Jeffreys' prior for a rate of which nothing is known."""


@dataclass(frozen=True)
class FailureRate:
    """Mean time between failures of the whole job, wall clock, and what it rests on."""

    mtbf_s: float
    basis: str


def judge_failure_rate(
    ranks: int, began_unix_s: float, failures_unix_s: Sequence[float], now_unix_s: float
) -> FailureRate:
    """From a run's begin (0: unknown, no history) and the times of its failures."""
    if not began_unix_s or began_unix_s >= now_unix_s:
        return _judge(ranks, 0.0, 0, "")
    whole = _judge(ranks, now_unix_s - began_unix_s, len(failures_unix_s), "")
    if now_unix_s - began_unix_s <= DAY_S:
        return whole
    recent = sum(at > now_unix_s - DAY_S for at in failures_unix_s)
    last_day = _judge(ranks, DAY_S, recent, " of the last day")
    return min(whole, last_day, key=lambda rate: rate.mtbf_s) if recent else whole


def chance_of_so_many(expected: float, count: int) -> float:
    """The chance of at least so many failures where so many are expected (Poisson)."""
    if count == 0:
        return 1.0
    if expected <= 0:
        return 0.0
    fewer = (math.exp(i * math.log(expected) - expected - math.lgamma(i + 1)) for i in range(count))
    return max(0.0, 1.0 - math.fsum(fewer))


def _judge(ranks: int, uptime_s: float, failures: int, when: str) -> FailureRate:
    rank_days = max(ranks, 1) * uptime_s / DAY_S
    if chance_of_so_many(rank_days / PRIOR_RANK_DAYS, failures) < CONTRADICTED:
        mtbf_s = uptime_s / (failures + OWN_PRIOR)
        return FailureRate(
            mtbf_s, f"{failures} failures{when} in {_told(uptime_s)}, far more than is usual"
        )
    per_rank_day = (PRIOR_FAILURES + failures) / (PRIOR_RANK_DAYS + rank_days)
    own = f", and {failures or 'none'} of its own{when} in {_told(uptime_s)}" if uptime_s else ""
    usual = f"usually one per {PRIOR_RANK_DAYS:,.0f} days of a rank"
    return FailureRate(DAY_S / (per_rank_day * max(ranks, 1)), usual + own)


def _told(uptime_s: float) -> str:
    return f"{uptime_s / 3600:.1f} h" if uptime_s >= 3600 else f"{uptime_s / 60:.0f} min"


# When checkpoints are due by this job's own figures: what one costs, and how often it fails.

MEASURED = 3
"""The newest checkpoints that a cost is the median of: one odd write decides nothing."""


@dataclass(frozen=True)
class Schedule:
    """The interval, and what it was worked out from."""

    interval: Interval
    cost: CheckpointCost | None
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


def cost_of(ledger: Iterable[LedgerEntry]) -> CheckpointCost | None:
    """What the newest checkpoints cost; None when none was measured."""
    measured = sorted((e for e in ledger if e.write_s > 0), key=lambda e: e.at_unix_s)[-MEASURED:]
    if not measured:
        return None
    return CheckpointCost(
        blocked_s=statistics.median(entry.blocked_s for entry in measured),
        write_s=statistics.median(entry.write_s for entry in measured),
    )


def count_ranks(cluster: Cluster) -> int:
    """Ranks of the plan; of the newest checkpoint when there is none; else 1."""
    if cluster.plan is not None and cluster.plan.world_size:
        return cluster.plan.world_size
    newest = max(cluster.ledger.values(), key=lambda entry: entry.at_unix_s, default=None)
    return 1 if newest is None else max(newest.world_size, 1)


# What a failure would cost this job by what is left after it, and what other figures would change.
#
# Averages: a failure comes at any moment of an interval alike.


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
class ScheduleWhatIf:
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


def what_if(schedule: Schedule, settings: CheckpointSettings) -> list[ScheduleWhatIf]:
    """How the schedule would answer to other figures; empty while nothing was measured."""
    cost, mtbf_s = schedule.cost, schedule.rate.mtbf_s
    if cost is None or settings.every_s > 0 or settings.every_steps > 0:
        return []
    half = dataclasses.replace(cost, blocked_s=cost.blocked_s / 2)
    tenfold = CheckpointCost(cost.blocked_s * 10, cost.write_s * 10)
    return [
        _under("failures twice as often", settings, cost, mtbf_s / 2),
        _under("failures ten times as often", settings, cost, mtbf_s / 10),
        _under(
            f"{schedule.ranks * 8} ranks instead of {schedule.ranks}", settings, cost, mtbf_s / 8
        ),
        _under("the loop kept half as long", settings, half, mtbf_s),
        _under("ten times the state on the same storage", settings, tenfold, mtbf_s),
    ]


def _under(
    change: str, settings: CheckpointSettings, cost: CheckpointCost, mtbf_s: float
) -> ScheduleWhatIf:
    interval_s = choose(settings, cost, mtbf_s).target_s
    lost_s = loss_per_failure_s(interval_s, cost)
    return ScheduleWhatIf(change, interval_s, waste(interval_s, cost.blocked_s, lost_s, mtbf_s))


# How often ranks take snapshots: as often as their cost allows, or not at all, and why.

FEWEST_SLOTS = 2
"""One that keeps the newest snapshot that exists, one to write the next into."""

SNAPSHOTS_BEFORE_DOUBT = 4
"""The first one costs more (pages are mapped, layouts planned); three more make a median."""

FIRST_EVERY_S = 1.0
"""Until that is known. One at every step would double the time of steps as short as a snapshot, for
as long as it takes to hear of it: half a second, a hundred such steps."""

RARER = 1.25
OFTENER = 2
"""Costs and steps vary by tens of percent from minute to minute, and ranks change their rhythm at
slightly different steps, which voids a snapshot or two: to come more often only a factor of two is
worth that. What is known to take more than its share has to come less often."""


def decide_rhythm(
    settings: SnapshotSettings,
    plan: Plan,
    nodes: Mapping[str, NodeReport],
    ranks: Iterable[RankReport],
    before: SnapshotOrder | None,
    epoch: int,
) -> SnapshotOrder | None:
    """The order that shall stand; None when it is not known yet, or stays as it is."""
    reports = snapshot_reports(plan, nodes)
    if len(reports) < len(plan.members) or not all(_has_decided(r) for r in reports.values()):
        return None
    standing = before if before is not None and before.attempt == plan.attempt else None
    step_s = max((rank.step_s for rank in ranks), default=0.0)
    every, reason = _rhythm(settings, reports, step_s, standing)
    if every == 0 and not reason:
        # No step was seen yet: those of the attempt before were much the same.
        every = 0 if before is None else before.every_steps
        if every == 0:
            return None
    wanted = SnapshotOrder(plan.attempt, epoch, every, reason)
    if standing is not None and dataclasses.replace(standing, epoch=epoch) == wanted:
        return None
    return wanted


def snapshot_reports(plan: Plan, nodes: Mapping[str, NodeReport]) -> dict[str, SnapshotReport]:
    """What the members' sidecars say about the slots of this attempt's ranks."""
    return {
        member.node: report
        for member in plan.members
        if (node := nodes.get(member.node)) is not None
        and (report := node.snapshot) is not None
        and report.attempt == plan.attempt
    }


def fewest_slots(plan: Plan, nodes: Mapping[str, NodeReport]) -> int:
    """Slots that every rank of this attempt has; 0 while some member has none, or has not said."""
    reports = snapshot_reports(plan, nodes)
    if len(reports) < len(plan.members):
        return 0
    return min((report.slots for report in reports.values()), default=0)


def _has_decided(report: SnapshotReport) -> bool:
    return report.slots > 0 or (report.wants and bool(report.obstacle))


def _rhythm(
    settings: SnapshotSettings,
    reports: Mapping[str, SnapshotReport],
    step_s: float,
    standing: SnapshotOrder | None,
) -> tuple[int, str]:
    short = [node for node, report in sorted(reports.items()) if report.slots < FEWEST_SLOTS]
    if short:
        why = reports[short[0]].obstacle or f"{reports[short[0]].slots} slots per rank"
        return 0, f"node {short[0]}: {why}"
    if settings.every_steps > 0:
        return settings.every_steps, ""
    current = standing.every_steps if standing is not None else 0
    needed, rarer = _needed(settings, reports.values(), step_s, current), RARER
    if needed == 0 and step_s:  # until the cost is known a guess is as good as the next one
        needed, rarer = math.ceil(FIRST_EVERY_S / step_s), OFTENER
    if current == 0:
        return needed, ""
    is_far_off = needed >= rarer * current or needed * OFTENER <= current
    return (needed if needed and is_far_off else current), ""


def _needed(
    settings: SnapshotSettings,
    reports: Iterable[SnapshotReport],
    step_s: float,
    current: int,
) -> int:
    """The smallest number of steps between snapshots that keeps to `most_share`; 0: not known.

    A snapshot every step is part of each step's time, and has to be taken off; one that comes less
    often than every other step does not show in the median.
    """
    known = list(reports)
    cost_s = max(report.blocked_s for report in known)
    if min(report.taken for report in known) < SNAPSHOTS_BEFORE_DOUBT or not cost_s or not step_s:
        return 0
    own_s = step_s - cost_s if current == 1 else step_s
    own_s = max(own_s, step_s / 100)
    return max(1, math.ceil(cost_s / (settings.most_share * own_s)))
