"""Metrics of where a run's time went and what failures cost; `goodput_samples.py` fills them in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator

from holdfast.contract.page import Word
from holdfast_sidecar.config.settings import CostSettings, PolicySettings
from holdfast_sidecar.performance.goodput import costs
from holdfast_sidecar.performance.goodput.costs import ettr, goodput, reliability
from holdfast_sidecar.performance.summary import heard
from holdfast_sidecar.policy.budget import PLANNED
from holdfast_sidecar.policy.cluster import Cluster
from holdfast_sidecar.policy.replacement import cap
from holdfast_sidecar.ranks.observation import RankLook
from holdfast_sidecar.records.account import MICRO, Account, Category, Phase
from holdfast_sidecar.records.metric import (
    JOB,
    NODE,
    RANK,
    Labels,
    MetricSpec,
    Sample,
    counter,
    gauge,
    of_job,
    summary,
)
from holdfast_sidecar.records.plan import TERMINAL, WITHHELD, Incident, Plan
from holdfast_sidecar.records.steps import Efficiency, SlowCause, Slowness, SlownessReport

GOODPUT: tuple[MetricSpec, ...] = (
    of_job(
        counter(
            "job_time_seconds_total",
            "seconds",
            (*JOB, "category"),
            "Wall-clock time of the run by what it was spent on: one category at a time, so that"
            " together they are the time since it began. Steps are put down when they end.",
        )
    ),
    of_job(
        counter(
            "job_gpu_time_seconds_total",
            "seconds",
            (*JOB, "category"),
            "The same, times the GPUs (ranks where there are none) that the plan counted on then.",
        )
    ),
    of_job(
        counter(
            "job_lost_work_seconds_total",
            "seconds",
            (*JOB, "cause", "node"),
            "Training that had to be done again, by cause of the restart and by the machine that is"
            " to blame (empty: none is). It stands in the time above as productive.",
        )
    ),
    of_job(
        counter(
            "job_lost_work_gpu_seconds_total",
            "seconds",
            (*JOB, "cause", "node"),
            "The same, times GPUs.",
        )
    ),
    of_job(
        gauge(
            "job_goodput_ratio",
            "ratio",
            JOB,
            "Of the run's time so far, waiting for nodes left out: productive, and not lost since.",
        )
    ),
    of_job(
        gauge(
            "job_ettr_ratio",
            "ratio",
            JOB,
            "The same with all time in which it trained, however well (effective training time).",
        )
    ),
    of_job(
        gauge(
            "job_start_timestamp_seconds",
            "seconds",
            JOB,
            "Since when its time is counted, Unix time.",
        )
    ),
    of_job(gauge("job_gpus", "", JOB, "GPUs, or ranks, that time is weighted by now.")),
    of_job(
        gauge(
            "job_gpu_hour_price",
            "",
            (*JOB, "currency"),
            "What an hour of a GPU costs, where `[cost] per_gpu_hour` says so.",
        )
    ),
)

RELIABILITY: tuple[MetricSpec, ...] = (
    of_job(
        summary(
            "job_recovery_phase_seconds",
            "seconds",
            (*JOB, "phase"),
            "Restarts that are over, by their parts: detect, drain, rendezvous, restore,"
            " first_step.",
        )
    ),
    of_job(
        gauge(
            "job_mtbf_seconds",
            "seconds",
            JOB,
            "Time of the run for each failure so far; absent before the first.",
        )
    ),
    of_job(
        gauge(
            "job_open_incident_info",
            "",
            (*JOB, "node", "cause", "incident", "decided"),
            "1 for every incident that is not over; without a node where no machine is blamed.",
        )
    ),
    of_job(
        gauge(
            "job_nodes_wanted",
            "",
            JOB,
            "Nodes of the run's largest attempt so far: with fewer it has shrunk.",
        )
    ),
    of_job(
        gauge(
            "node_drained",
            "",
            NODE,
            "1 while a person keeps this node outside and no ranks run there: what the run lacks by"
            " it is meant so; absent for others.",
        )
    ),
    of_job(
        gauge(
            "job_restart_budget_remaining",
            "",
            JOB,
            "Restarts that are left before the job is stopped, of the cause that has fewest.",
        )
    ),
    of_job(gauge("job_exit_code", "", JOB, "How the run ended; absent while it goes on.")),
)


# Where the run's time went and what failures cost, by its account and its incidents.

STOPPED_FOR_S = 3600.0
"""So long an incident that the job was stopped over is told as open: an alert about it must last
longer than it takes somebody to look, and the store forgets the run after an hour, too."""


def draw_goodput(
    account: Account | None, causes: Collection[str], price: CostSettings, told: Labels
) -> Iterator[Sample]:
    """Every category from 0 on, and lost work for these causes."""
    for category in Category:
        about = told.about(category=category.value)
        yield from about("job_time_seconds_total", account.seconds(category) if account else 0.0)
        gpu_s = account.gpu_seconds(category) if account else 0.0
        yield from about("job_gpu_time_seconds_total", gpu_s)
    yield from _draw_lost(account, causes, told)
    if price.per_gpu_hour > 0:
        yield from told("job_gpu_hour_price", price.per_gpu_hour, currency=price.currency)
    if account is not None:
        yield from told("job_goodput_ratio", goodput(account))
        yield from told("job_ettr_ratio", ettr(account))
        yield from told("job_start_timestamp_seconds", account.began_us / MICRO)
        yield from told("job_gpus", account.gpus)


def _draw_lost(account: Account | None, causes: Collection[str], told: Labels) -> Iterator[Sample]:
    lost = costs.lost_work(account.costs.values() if account else ())
    for cause, node in sorted(lost.keys() | {(cause, "") for cause in causes}):
        one = lost.get((cause, node), costs.Lost())
        about = told.about(cause=cause, node=node)
        yield from about("job_lost_work_seconds_total", one.seconds)
        yield from about("job_lost_work_gpu_seconds_total", one.gpu_seconds)


def draw_reliability(
    cluster: Cluster, policy: PolicySettings, now_unix_s: float, told: Labels
) -> Iterator[Sample]:
    """How often the run fails, and how long it takes to mend that."""
    account = cluster.account
    if account is not None:
        incidents = costs.of_run(cluster.incidents, account)
        yield from told("job_mtbf_seconds", reliability(account, incidents).mtbf_s)
    over = [] if account is None else list(account.costs.values())
    for phase in Phase:
        total_us = sum(cost.phases.get(phase.value, 0) for cost in over)
        yield from told.summary(
            "job_recovery_phase_seconds", len(over), total_us / MICRO, phase=phase.value
        )
    for incident in _of_this_run(cluster):
        if is_open(incident, now_unix_s):
            yield from _draw_open(incident, told)
    if cluster.plan is not None:
        yield from _draw_plan(cluster, cluster.plan, policy, now_unix_s, told)


def _of_this_run(cluster: Cluster) -> Iterator[Incident]:
    """Incidents that may still be open: not those of an earlier run, which the store keeps; and no
    restart is under way any more in a run that is over."""
    plan = cluster.plan
    if plan is None:
        yield from cluster.incidents.values()
        return
    since_unix_s = plan.began_unix_s - costs.CLOCKS_APART_S
    for incident in cluster.incidents.values():
        is_left_behind = plan.state in TERMINAL and incident.decided == "restart"
        if incident.detected_unix_s >= since_unix_s and not is_left_behind:
            yield incident


def is_open(incident: Incident, now_unix_s: float) -> bool:
    """Whether somebody might still want to be told of it."""
    if incident.recovered_unix_s or (incident.decided in WITHHELD and incident.ended_unix_s):
        return False
    stopped_s = now_unix_s - (incident.ended_unix_s or incident.detected_unix_s)
    return incident.decided != "stop" or stopped_s < STOPPED_FOR_S


def _draw_open(incident: Incident, told: Labels) -> Iterator[Sample]:
    yield from told(
        "job_open_incident_info",
        1,
        node=costs.blamed_node(incident),
        cause=incident.cause,
        incident=incident.identifier,
        decided=incident.decided,
    )


def _draw_plan(
    cluster: Cluster,
    plan: Plan,
    policy: PolicySettings,
    now_unix_s: float,
    told: Labels,
) -> Iterator[Sample]:
    nodes = 0 if cluster.account is None else cluster.account.nodes
    yield from told("job_nodes_wanted", max(nodes, len(plan.members)))
    for node in sorted(_taken_out(cluster, plan)):
        yield from told("node_drained", 1, node=node)
    known = cluster.incidents.values()
    left = budget_left(known, plan.restarts, cap(cluster, policy), policy, now_unix_s)
    yield from told("job_restart_budget_remaining", left)
    if plan.state in TERMINAL:
        yield from told("job_exit_code", plan.exit_code)


def _taken_out(cluster: Cluster, plan: Plan) -> set[str]:
    """Nodes that a person keeps outside; one whose ranks still run is not out yet."""
    members = {member.node for member in plan.members}
    return {one.node for one in cluster.outside() if one.by} - members


def budget_left(
    incidents: Collection[Incident],
    restarts: int,
    most: int,
    policy: PolicySettings,
    now_unix_s: float,
) -> int:
    """Restarts that are left, of the cause that has fewest; as restart.decide. most: in all, -1:
    no cap."""
    recent = Counter(
        one.cause
        for one in incidents
        if one.decided == "restart"
        and one.cause not in PLANNED
        and now_unix_s - one.detected_unix_s <= policy.budget_window_s
    )
    left = policy.budget - max(recent.values(), default=0)
    return max(0, min(left, most - restarts) if most >= 0 else left)


# Metrics of who is slow, what it costs, how well the job does; `slowness_samples.py` fills them
# in.

SLOWNESS: tuple[MetricSpec, ...] = (
    of_job(
        gauge(
            "job_slow_ranks",
            "",
            JOB,
            "Ranks that are slower than they should be now; `holdfast explain --slow` says why.",
        )
    ),
    of_job(
        gauge(
            "rank_slowdown_ratio",
            "ratio",
            (*RANK, "cause"),
            "By what part of its peers' time this rank takes longer, only while it is slow: 0.3 is"
            " 30 % slower.",
        )
    ),
    of_job(
        gauge(
            "job_slowdown_gain_ratio",
            "ratio",
            JOB,
            "By how much the job would be faster without the one rank that slows it most; absent"
            " while none does.",
        )
    ),
    of_job(
        counter(
            "job_slowed_seconds_total",
            "seconds",
            (*JOB, "cause"),
            "Time of the whole job that slowness cost so far, by its cause.",
        )
    ),
    of_job(
        counter(
            "job_watched_seconds_total",
            "seconds",
            JOB,
            "Time of the steps that were judged for it.",
        )
    ),
)

EFFICIENCY: tuple[MetricSpec, ...] = (
    of_job(
        gauge(
            "job_mfu_ratio",
            "ratio",
            JOB,
            "Model FLOPs utilisation: of what the devices could do, what the model needed.",
        )
    ),
    of_job(
        gauge(
            "job_hfu_ratio",
            "ratio",
            JOB,
            "The same with what activation checkpointing computes again.",
        )
    ),
    of_job(gauge("job_tokens_per_second", "", JOB, "Tokens that all ranks train on, a second.")),
    of_job(
        gauge(
            "job_communication_share_ratio",
            "ratio",
            JOB,
            "Of a step: exposed communication, on the median rank.",
        )
    ),
    of_job(gauge("job_data_share_ratio", "ratio", JOB, "Of a step: waiting for batches.")),
    of_job(
        gauge(
            "job_pipeline_bubble_ratio",
            "ratio",
            JOB,
            "Of a step: pipeline stages that had nothing to do.",
        )
    ),
    of_job(
        gauge(
            "job_pace_ratio",
            "ratio",
            JOB,
            "Throughput of the newest steps against that of the attempt's first ones after its"
            " warm-up; 1: as fast. It says nothing of more or fewer ranks.",
        )
    ),
)

MEMORY: tuple[MetricSpec, ...] = (
    gauge(
        "rank_device_memory_bytes",
        "bytes",
        (*RANK, "kind"),
        "Memory of the rank's device: allocated (tensors), reserved (by torch's allocator), peak"
        " (the most reserved in this attempt), total. Absent without a device.",
    ),
    counter(
        "rank_device_memory_retries_total",
        "",
        RANK,
        "Times the allocator had to give back what it kept before it found room; absent before the"
        " first.",
    ),
)


# Who is slow, what it costs, and how well the job does, as its leader judged.

KINDS = {
    "allocated": Word.MEMORY_ALLOCATED,
    "reserved": Word.MEMORY_RESERVED,
    "peak": Word.MEMORY_PEAK,
    "total": Word.MEMORY_TOTAL,
}


def draw_slowness(cluster: Cluster, plan: Plan, leader: str, told: Labels) -> Iterator[Sample]:
    """Nothing before the first steps were judged."""
    standing = heard(cluster.nodes.values(), leader)
    if standing is None:
        return
    yield from told("job_watched_seconds_total", standing.watched_s)
    # A counter never falls: what a cause turns out not to have been stays where it was counted.
    charged_s = standing.charged_s or standing.lost_s
    for cause in SlowCause:
        seconds = charged_s.get(cause.value, 0.0)
        yield from told("job_slowed_seconds_total", seconds, cause=cause.value)
    if standing.attempt == plan.attempt:
        yield from _draw_now(standing, plan, told)


def _draw_now(standing: SlownessReport, plan: Plan, told: Labels) -> Iterator[Sample]:
    """What holds for the attempt under way alone."""
    slow = {rank: one for one in standing.slow for rank in one.ranks}
    yield from told("job_slow_ranks", len(slow))
    gains = [one.gain for one in standing.what_ifs if one.kind == "rank"]
    yield from told("job_slowdown_gain_ratio", max(gains, default=None))
    for rank, one in sorted(slow.items()):
        node = _node_of(rank, one, plan)
        about = told.about(node=node, rank=str(rank), cause=one.cause.value)
        yield from about("rank_slowdown_ratio", one.slowdown)
    if standing.efficiency is not None:
        yield from _draw_efficiency(standing.efficiency, told)


def _node_of(rank: int, one: Slowness, plan: Plan) -> str:
    seated = (member.node for member in plan.members if rank in member.ranks)
    return next(seated, one.node)


def _draw_efficiency(one: Efficiency, told: Labels) -> Iterator[Sample]:
    yield from told("job_mfu_ratio", one.mfu)
    yield from told("job_hfu_ratio", one.hfu)
    yield from told("job_tokens_per_second", one.tokens_per_s)
    yield from told("job_communication_share_ratio", one.communication_share)
    yield from told("job_data_share_ratio", one.data_share)
    yield from told("job_pipeline_bubble_ratio", one.bubble_share)
    yield from told("job_pace_ratio", one.pace)


def draw_memory(look: RankLook, told: Labels) -> Iterator[Sample]:
    """Of a rank's device; nothing of a rank that trains on none."""
    if not look.words[Word.MEMORY_TOTAL]:
        return
    for kind, word in KINDS.items():
        yield from told("rank_device_memory_bytes", look.words[word], kind=kind)
    yield from told("rank_device_memory_retries_total", look.words[Word.MEMORY_RETRIES] or None)
