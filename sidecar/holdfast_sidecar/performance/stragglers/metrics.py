"""Metrics of who is slow, what it costs, how well the job does; `slowness_samples.py` fills them
in.
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.contract.page import Word
from holdfast_sidecar.performance.summary import heard
from holdfast_sidecar.policy.cluster import Cluster
from holdfast_sidecar.ranks.observation import RankLook
from holdfast_sidecar.records.metric import JOB, RANK, Entry, Sample, Told, counter, gauge, of_job
from holdfast_sidecar.records.plan import Plan
from holdfast_sidecar.records.steps import Cause, Efficiency, Slowness, SlowStanding

SLOWNESS: tuple[Entry, ...] = (
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

EFFICIENCY: tuple[Entry, ...] = (
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

MEMORY: tuple[Entry, ...] = (
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


def draw_slowness(cluster: Cluster, plan: Plan, leader: str, told: Told) -> Iterator[Sample]:
    """Nothing before the first steps were judged."""
    standing = heard(cluster.nodes.values(), leader)
    if standing is None:
        return
    yield from told("job_watched_seconds_total", standing.watched_s)
    # A counter never falls: what a cause turns out not to have been stays where it was counted.
    charged_s = standing.charged_s or standing.lost_s
    for cause in Cause:
        seconds = charged_s.get(cause.value, 0.0)
        yield from told("job_slowed_seconds_total", seconds, cause=cause.value)
    if standing.attempt == plan.attempt:
        yield from _draw_now(standing, plan, told)


def _draw_now(standing: SlowStanding, plan: Plan, told: Told) -> Iterator[Sample]:
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


def _draw_efficiency(one: Efficiency, told: Told) -> Iterator[Sample]:
    yield from told("job_mfu_ratio", one.mfu)
    yield from told("job_hfu_ratio", one.hfu)
    yield from told("job_tokens_per_second", one.tokens_per_s)
    yield from told("job_communication_share_ratio", one.communication_share)
    yield from told("job_data_share_ratio", one.data_share)
    yield from told("job_pipeline_bubble_ratio", one.bubble_share)
    yield from told("job_pace_ratio", one.pace)


def draw_memory(look: RankLook, told: Told) -> Iterator[Sample]:
    """Of a rank's device; nothing of a rank that trains on none."""
    if not look.words[Word.MEMORY_TOTAL]:
        return
    for kind, word in KINDS.items():
        yield from told("rank_device_memory_bytes", look.words[word], kind=kind)
    yield from told("rank_device_memory_retries_total", look.words[Word.MEMORY_RETRIES] or None)
