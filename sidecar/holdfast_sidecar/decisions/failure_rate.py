"""How often this job fails: what is known of others like it, corrected by its own history.

A Gamma prior on failures per rank and day, updated by the job's own failures and uptime. Failures
come in kinds that differ by orders of magnitude (a script's own bug, a bad node), so a prior that
the job's own failures contradict is dropped, and the last day counts for itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

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
