"""What a made-up job has been through: incidents, checkpoints, its account, who is slow."""

from __future__ import annotations

from holdfast_sidecar.records.checkpoint import CheckpointTally, LedgerEntry
from holdfast_sidecar.records.plan import Incident
from holdfast_sidecar.records.steps import Efficiency, SlowCause, Slowness, SlownessReport, WhatIf

INCIDENTS = 50
"""A bad week; the page shows no more than these."""
CHECKPOINTS = 8
CAUSES = ("crash", "hang", "gpu", "node_lost", "link")
PENDING_US = 1_500_000
"""Of the step under way; it is split at its end."""
COST_US = (1_000_000, 500_000, 1_500_000, 300_000, 200_000)
"""Of each incident: detect, drain, rendezvous, restore, first step."""
LOST_US = 5_000_000


def incidents(began_unix_s: float) -> dict[str, Incident]:
    """All of them over, none within the last hour: no alert fires for what was."""
    made = (_incident(number, began_unix_s + 60.0 * number) for number in range(INCIDENTS))
    return {one.identifier: one for one in made}


def _incident(number: int, at_unix_s: float) -> Incident:
    return Incident(
        f"i{number}",
        number // 20,
        CAUSES[number % len(CAUSES)],
        "node-0",
        [number % 8],
        0.95,
        since_unix_s=at_unix_s,
        detected_unix_s=at_unix_s + 1.0,
        recovered_unix_s=at_unix_s + 25.0,
        step_reached=50 + number,
        step_resumed=40 + number,
        decided="restart",
    )


def ledger(step: int, now_unix_s: float) -> dict[str, LedgerEntry]:
    """One each ten minutes, the newest two minutes old."""
    return {
        f"c{number}": LedgerEntry(
            f"c{number}",
            f"/c/step-c{number}",
            step - 240 - 1200 * (CHECKPOINTS - 1 - number),
            2,
            3,
            f"c{number - 1}" if number else "",
            "good" if number < CHECKPOINTS - 1 else "complete",
            10**12,
            8,
            now_unix_s - 120.0 - 600.0 * (CHECKPOINTS - 1 - number),
            blocked_s=2.0,
            write_s=40.0,
        )
        for number in range(CHECKPOINTS)
    }


def tally() -> CheckpointTally:
    """Of all that were written."""
    return CheckpointTally({"complete periodic": 40, "void grow": 1}, 40, 20.0, 1600)


def account(
    began_unix_s: float, now_unix_s: float, ranks: int, nodes: int, attempt: int
) -> dict[str, str]:
    """As it lies in the store: microseconds by category, of the job and of its GPUs."""
    lasted = int((now_unix_s - began_unix_s) * 1e6)
    spent = {"init": 20_000_000, "hang_undetected": 8_500_000, "restart": 90_000_000}
    spent["productive"] = lasted - sum(spent.values()) - PENDING_US
    lost = " ".join(map(str, (*COST_US, LOST_US, LOST_US * ranks, 10)))
    return {
        "began": str(int(began_unix_s * 1e6)),
        "at": str(int(now_unix_s * 1e6)),
        "open": "pending",
        "pending": str(PENDING_US),
        "run": f"{began_unix_s:.6f}",
        "attempt": str(attempt),
        "gpus": str(ranks),
        "nodes": str(nodes),
        "weight": str(ranks),
        **{f"s:{category}": str(us) for category, us in spent.items()},
        **{f"g:{category}": str(us * ranks) for category, us in spent.items()},
        **{
            f"i:i{number}": f"{lost} {CAUSES[number % len(CAUSES)]} node-0"
            for number in range(INCIDENTS)
        },
    }


def standing(leader: str, rank: int, attempt: int, now_unix_s: float) -> SlownessReport:
    """One rank that is slow, of the leader's node."""
    slow = Slowness(
        ranks=[rank],
        node=leader,
        role="",
        cause=SlowCause.CPU_QUOTA,
        part="forward",
        slowdown=0.31,
        confidence=0.95,
        since_step=1200,
        since_unix_s=now_unix_s - 900.0,
        is_persistent=True,
        gain=0.18,
        lost_s=360.0,
        evidence=["its control group was throttled for 28 % of the time"],
        advice="raise the quota (cpu.max) of the pod",
        cause_confidence=0.9,
    )
    efficiency = Efficiency(
        mfu=0.382,
        hfu=0.41,
        tokens_per_s=512300.0,
        communication_share=0.121,
        data_share=0.03,
        pace=0.95,
        step_s=0.5,
    )
    return SlownessReport(
        attempt=attempt,
        step=2048,
        judged_ranks=7,
        at_unix_s=now_unix_s,
        slow=[slow],
        what_ifs=[WhatIf(f"rank {rank}", "rank", 0.18, 360.0)],
        unjudged=[],
        watched_s=3600.0,
        lost_s={"cpu_quota": 360.0},
        lost_by_rank={f"{rank} on {leader}": 360.0},
        efficiency=efficiency,
    )
