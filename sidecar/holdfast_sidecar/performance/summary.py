"""A job's performance out of what its nodes report. Pure.

Who is slow the leader says; how each rank's steps went the nodes say themselves.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence

from holdfast_sidecar.records.plan import Plan
from holdfast_sidecar.records.reports import Losses, NodeReport, Performance, RankReport, RankSteps
from holdfast_sidecar.records.steps import SlownessReport, StepLine, parse

SHOWN = 32
"""Ranks that are told one by one: what fits on a screen. Of more than these the slowest are."""

READ = 2 * SHOWN
"""Ranks whose lines are read at least, where there are so many."""

COMPARED = 4
"""...and among them some in the middle and at the fast end, to see the slowest beside."""

CAUSES_KEPT = 64
"""Names that losses are summed up by; of ranks the dearest so many."""


def heard(nodes: Iterable[NodeReport], leader: str) -> SlownessReport | None:
    """What the leader says; while a new one has said nothing yet, what was said last: the totals
    only grow, also where clocks differ."""
    told = [(node.candidate == leader, node.slow) for node in nodes if node.slow is not None]
    newest = max(
        told,
        key=lambda one: (one[0], one[1].attempt, one[1].watched_s, one[1].at_unix_s),
        default=None,
    )
    return None if newest is None else newest[1]


def staying_by(nodes: Iterable[NodeReport], leader: str) -> dict[str, str]:
    """Who is slow -> why its node is not replaced, as the leader says."""
    return next((dict(node.staying) for node in nodes if node.candidate == leader), {})


def see(plan: Plan, nodes: Collection[NodeReport], leader: str) -> Performance:
    """How the run goes by these reports."""
    members = [node for node in nodes if node.attempt == plan.attempt]
    lines = newest_lines(text for node in members for text in node.steps)
    ranks = [
        rank_steps(report, node.node, lines.get(report.rank))
        for node in members
        for report in node.ranks
    ]
    return Performance(
        plan.began_unix_s,
        plan.world_size,
        heard(nodes, leader),
        sorted(ranks, key=lambda rank: rank.rank),
        staying=staying_by(nodes, leader),
    )


def in_brief(plan: Plan, nodes: Collection[NodeReport], leader: str) -> Performance:
    """The same, of a job of thousands of ranks by the reports of a few nodes: those of the slow
    ones, and some to compare with. Each node writes it down now and then, and reading the lines of
    all ranks for it would cost every one of them a percent of a core."""
    members = [node for node in nodes if node.attempt == plan.attempt]
    standing = heard(nodes, leader)
    slow = set(slow_ranks(standing))
    members.sort(key=lambda node: (slow.isdisjoint(rank.rank for rank in node.ranks), node.node))
    chosen: list[NodeReport] = []
    for node in members:
        if sum(len(one.ranks) for one in chosen) >= READ:
            break
        chosen.append(node)
    seen = shortened(see(plan, chosen, leader))
    known = sum(len(node.ranks) for node in members)
    return dataclasses.replace(seen, standing=standing, left_out=known - len(seen.ranks))


def newest_lines(texts: Iterable[str]) -> dict[int, str]:
    """Of the block of steps that most ranks tell of, the newest such: rank -> its line."""
    told: dict[tuple[int, int], dict[int, str]] = {}
    for text in texts:
        line = parse(text)
        if line is not None and line.steps > 0:
            told.setdefault((line.step, line.stride), {})[line.rank] = text
    best = max(told, key=lambda block: (len(told[block]), block), default=None)
    return {} if best is None else told[best]


def rank_steps(report: RankReport, node: str, line: str | None) -> RankSteps:
    """A rank as a report of performance has it."""
    return RankSteps(
        report.rank,
        node,
        line or "",
        report.memory_allocated,
        report.memory_reserved,
        report.memory_peak,
        report.memory_total,
        report.memory_retries,
    )


def lines_of(ranks: Iterable[RankSteps]) -> dict[int, StepLine]:
    """rank -> its line, of those that told one."""
    parsed = {one.rank: parse(one.line) for one in ranks if one.line}
    return {rank: line for rank, line in parsed.items() if line is not None}


def shortened(performance: Performance, most: int = SHOWN) -> Performance:
    """With so many ranks at most: those called slow, the slowest, and some to compare with."""
    ranks = performance.ranks
    if len(ranks) <= most:
        return performance
    chosen = set(_worth_showing(performance, most))
    kept = [one for one in ranks if one.rank in chosen]
    left_out = performance.left_out + len(ranks) - len(kept)
    return dataclasses.replace(performance, ranks=kept, left_out=left_out)


def _worth_showing(performance: Performance, most: int) -> Sequence[int]:
    lines = lines_of(performance.ranks)
    by_own = sorted(lines, key=lambda rank: -lines[rank].own_us)
    slow = slow_ranks(performance.standing)
    others = [rank for rank in by_own if rank not in slow]
    middle = others[len(others) // 2 :][: COMPARED // 2] + others[-COMPARED // 2 :]
    silent = [one.rank for one in performance.ranks if one.rank not in lines]
    wanted = [*slow[: most - COMPARED], *middle, *others, *silent]
    return list(dict.fromkeys(wanted))[:most]


def slow_ranks(standing: SlownessReport | None) -> list[int]:
    """Ranks that are called slow now."""
    return [] if standing is None else [rank for one in standing.slow for rank in one.ranks]


def losses_of(performance: Performance | None) -> Losses:
    """What the run lost so far, as its newest standing sums it up."""
    standing = None if performance is None else performance.standing
    if standing is None:
        return Losses()
    return Losses(standing.watched_s, dict(standing.lost_s), dict(standing.lost_by_rank))


def summed(one: Losses, other: Losses) -> Losses:
    """Both together; of what is dearest as much as is worth keeping."""
    return Losses(
        one.watched_s + other.watched_s,
        _added(one.by_cause, other.by_cause),
        _added(one.by_rank, other.by_rank),
    )


def _added(one: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    names = {*one, *other}
    total = {name: one.get(name, 0.0) + other.get(name, 0.0) for name in names}
    dearest = sorted(total, key=lambda name: (-total[name], name))
    return {name: total[name] for name in dearest[:CAUSES_KEPT]}


def median_us(lines: Collection[StepLine], part: str) -> float:
    """The middle rank's mean time in this part of a step, microseconds; 0 without any line."""
    return statistics.median(getattr(line, part) for line in lines) if lines else 0.0
