"""What a job's standings say of each planted fault, and of ranks that were well. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from bench.benchmark import Sample
from bench.stragglers.real_plan import Episode, Plan

Standing = Mapping[str, Any]

TAIL = 24
"""Steps after a fault in which it may still be told: a line covers some, and whoever was slow has
to be well for about as long as it was slow before that is believed."""

LINKS = ("link", "gpu_link")


def of_episode(episode: Episode, standings: Sequence[Standing], times: Sequence[float]) -> Sample:
    """Found after how many of its steps, with which cause; None: never while it lasted.

    times: what each step took, of the rank's own work, or of all where a link is slow.
    """
    told = [
        (standing["step"], one)
        for standing in standings
        if episode.since < standing["step"] <= episode.until
        for one in standing["slow"]
        if names(one, episode)
    ]
    first = told[0][0] - episode.since if told else None
    return {
        "cause": episode.cause,
        "rank": episode.rank,
        "slowdown": episode.slowdown,
        "achieved": _achieved(episode, times),
        "found_after": first,
        "told_cause": told[-1][1]["cause"] if told else None,
        "first_cause": told[0][1]["cause"] if told else None,
        "told_slowdown": told[-1][1]["slowdown"] if told else None,
        "evidence": told[-1][1].get("evidence", []) if told else [],
    }


def names(one: Mapping[str, Any], episode: Episode) -> bool:
    """Whether this slowness is about the fault's rank. A link has two ends, and here each node has
    several ranks: whoever blames one rank alone for it blames it wrongly."""
    if episode.cause in LINKS:
        return len(one["ranks"]) > 1
    return bool(one["ranks"] == [episode.rank])


def false_alarms(plan: Plan, standings: Sequence[Standing]) -> list[dict[str, Any]]:
    """Ranks that were told slow while they were well: once each until they are told no more."""
    alarms: list[dict[str, Any]] = []
    open_ones: set[tuple[int, ...]] = set()
    for standing in standings:
        step = standing["step"]
        named = {tuple(one["ranks"]): one for one in standing["slow"]}
        wrong = {key for key in named if not _is_explained(plan, key, step, named[key])}
        for key in sorted(wrong - open_ones):
            one = named[key]
            alarms.append(
                {
                    "step": step,
                    "ranks": list(key),
                    "cause": one["cause"],
                    "slowdown": one["slowdown"],
                    "since_step": one.get("since_step"),
                    "evidence": one.get("evidence", []),
                }
            )
        open_ones = wrong
    return alarms


def _is_explained(plan: Plan, ranks: tuple[int, ...], step: int, one: Mapping[str, Any]) -> bool:
    late = [e for e in plan.episodes if e.since < step <= e.until + TAIL]
    return any(names(one, episode) for episode in late) or not ranks


def _achieved(episode: Episode, times: Sequence[float]) -> float | None:
    """By how much longer they were meanwhile, beside those before."""
    slow = times[episode.since : episode.until]
    before = times[max(0, episode.since - 30) : episode.since]
    if not slow or not before:
        return None
    return round(statistics.median(slow) / statistics.median(before) - 1, 4)
