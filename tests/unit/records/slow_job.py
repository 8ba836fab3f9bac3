"""A job of eight ranks on two nodes whose rank 5 is slow, as its nodes tell of it."""

from __future__ import annotations

import dataclasses
from typing import Any

from holdfast_sidecar.records.plan import Member, Plan
from holdfast_sidecar.records.reports import NodeReport, RankReport
from holdfast_sidecar.records.steps import (
    Efficiency,
    SlowCause,
    Slowness,
    SlownessReport,
    StepLine,
    WhatIf,
    spell,
)

SLOW = Slowness(
    ranks=[5],
    node="b",
    role="pp=0",
    cause=SlowCause.CPU_QUOTA,
    part="forward",
    slowdown=0.31,
    confidence=0.95,
    since_step=1200,
    since_unix_s=4000.0,
    is_persistent=True,
    gain=0.18,
    lost_s=360.0,
    evidence=["its control group was throttled for 28 % of the time"],
    advice="raise the quota (cpu.max) of the pod",
    cause_confidence=0.9,
)


def slow(*ranks: int, **changes: Any) -> Slowness:
    """The same trouble of these ranks, but for what `changes` says."""
    return dataclasses.replace(SLOW, ranks=list(ranks), **changes)


EFFICIENCY = Efficiency(
    mfu=0.382,
    hfu=0.41,
    tokens_per_s=512300.0,
    communication_share=0.121,
    data_share=0.03,
    pace=0.82,
    step_s=0.152,
    unknown=["bubbles: the job has no pipeline stages"],
)

STANDING = SlownessReport(
    attempt=0,
    step=2048,
    judged_ranks=7,
    at_unix_s=4990.0,
    slow=[SLOW],
    what_ifs=[
        WhatIf("rank 5", "rank", 0.18, 360.0),
        WhatIf("even work", "work", 0.06, 120.0),
    ],
    unjudged=["rank 7: no other rank has its role"],
    watched_s=3600.0,
    lost_s={"cpu_quota": 360.0, "collector": 36.0},
    lost_by_rank={"5 on b": 360.0},
    efficiency=EFFICIENCY,
)

QUIET = dataclasses.replace(STANDING, slow=[], what_ifs=[], unjudged=[], lost_s={}, lost_by_rank={})


def line(rank: int, step: int = 2048, **given: int) -> StepLine:
    """Means of a block of sixteen steps, 152 ms each; rank 5 works for 142 of them itself."""
    parts = dict.fromkeys(StepLine._fields, 0)
    forward = 122000 if rank == 5 else 80000
    parts |= {"rank": rank, "step": step, "stride": 16, "steps": 16, "total": 152000}
    parts |= {"data": 2000, "forward": forward, "backward": 10000, "optimizer": 8000}
    parts |= {"communicating": 132000 - forward, "waits_seen": 1, **given}
    return StepLine(**parts)


def rank_report(rank: int, **given: Any) -> RankReport:
    return RankReport(rank, rank % 4, 100 + rank, 2050, "forward", 0.1, 0.15, 0.1, **given)


def node(name: str, first: int, slow: SlownessReport | None = None, **given: Any) -> NodeReport:
    """Four ranks from this one on."""
    ranks = [rank_report(rank, **given) for rank in range(first, first + 4)]
    steps = [spell(line(rank)) for rank in range(first, first + 4)]
    return NodeReport(name, "i", 1, 0, 1, 0, True, ranks=ranks, steps=steps, slow=slow)


PLAN = Plan(
    0,
    1,
    "running",
    [Member("a", "i", 0, 0, 4), Member("b", "i", 1, 4, 4)],
    world_size=8,
    began_unix_s=1000.0,
)


def nodes(slow: SlownessReport | None = STANDING, **given: Any) -> list[NodeReport]:
    """Node a leads."""
    return [node("a", 0, slow, **given), node("b", 4, None, **given)]
