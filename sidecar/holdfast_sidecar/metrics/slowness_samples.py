"""Who is slow, what it costs, and how well the job does, as its leader judged."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.page import Word
from holdfast_sidecar.performance_seen import heard
from holdfast_sidecar.policy.cluster import Cluster
from holdfast_sidecar.ranks.observation import RankLook
from holdfast_sidecar.records.metric import Sample, Told
from holdfast_sidecar.records.plan import Plan
from holdfast_sidecar.records.steps import Cause, Efficiency, Slowness, SlowStanding

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
