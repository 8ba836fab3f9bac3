"""Which ranks to trace, at which future step, and what became of an order to trace."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from holdfast_sidecar.policy import checkpoint_order
from holdfast_sidecar.records.checkpoint import DONE, TracedRank, TraceOrder
from holdfast_sidecar.records.plan import Plan, Request
from holdfast_sidecar.records.reports import NodeReport, RankReport
from holdfast_sidecar.records.steps import SlownessReport

WARM_UP_STEPS = 1
"""The profiler is made ready in the step before, so that what that takes the first time (a tenth
of a second to seconds) is in no traced step; it must be heard of by then."""

PATIENCE_S = 120.0
"""From arming on, unless the request says otherwise."""

TIMES_S = 30.0
TIMES_SHARE = 0.25
"""So long, and so much of its patience at most, a request waits for the times of ranks that have
only begun."""

MOST_COMPARED = 4
"""Columns that fit a terminal."""


FILE_UNDER_WAY = frozenset({"saving", "saved"})
"""States from which only its file, or summing that up, is still to come."""


WITHOUT_HOOKS = frozenset({"computing", "resting", "stopped"})
"""Phases that are seen of processes from outside; hooks tell others."""

WHY_NOT = {
    "none": "it never answered (one that is watched from outside has no hooks that could)",
    "armed": "it did not get to the step in time",
    "saving": "its file was not there in time",
    "failed": "it failed, and could not write down why (is the disk of its node full?)",
    "void": "it was taken back",
    "missed": "it was past the step when it heard of it",
}
"""State of a rank without a trace and without a word -> what that means."""


@dataclass(frozen=True)
class TraceChoice:
    """Whom to trace, whom of them to set side by side, and why these."""

    ranks: list[int]
    compared: list[int]
    why: str


@dataclass(frozen=True)
class TraceRefused:
    """Nothing will come of the request, and why."""

    reason: str


@dataclass(frozen=True)
class Taken:
    """Nothing more comes; some ranks have their traces."""

    ranks: tuple[TracedRank, ...]


@dataclass(frozen=True)
class TraceTooLate:
    """Some rank was past the step when it heard of it."""

    reason: str


@dataclass(frozen=True)
class TraceVoid:
    """It came to nothing, and why."""

    reason: str


@dataclass(frozen=True)
class TracePending:
    """Still under way."""


def obstacle(plan: Plan, ranks: Mapping[int, RankReport]) -> str:
    """Why no trace can be ordered now; empty when one can."""
    if plan.state != "running":
        return "the attempt has ended"
    if len(ranks) < plan.world_size:
        return f"{len(ranks)} of {plan.world_size} ranks are up"
    if any(rank.phase in ("starting", "restoring") for rank in ranks.values()):
        return "the ranks are still starting"
    if not all(rank.alive and rank.ending == 0 for rank in ranks.values()):
        return "a rank has ended"
    return ""


def awaits_times(request: Request, ranks: Mapping[int, RankReport]) -> bool:
    """Whether it can't be told yet who is slow: the first whole step is still to come of some rank
    that steps, or of all. There are ranks that never step: they evaluate, or fill a buffer."""
    if request.at_step or 0 < len(set(request.ranks)) <= MOST_COMPARED:
        return False
    hooked = [rank for rank in ranks.values() if rank.phase not in WITHOUT_HOOKS]
    unknown = [rank for rank in hooked if rank.step_s == 0]
    return any(rank.step > 0 for rank in unknown) or (bool(unknown) and len(unknown) == len(hooked))


def waits_for_times_s(request: Request) -> float:
    """How long it waits for them at most."""
    return min(TIMES_S, TIMES_SHARE * patience_s(request))


def choose(
    request: Request,
    ranks: Mapping[int, RankReport],
    roles: Mapping[int, str],
    standing: SlownessReport | None,
) -> TraceChoice | TraceRefused:
    """Whom to trace: those that were named, else the slowest and a healthy peer of its role."""
    if unknown := sorted(set(request.ranks) - ranks.keys()):
        return TraceRefused(f"there is no rank {unknown[0]}: the job has ranks 0 to {max(ranks)}")
    if all(rank.phase in WITHOUT_HOOKS for rank in ranks.values()):
        return TraceRefused(
            "its ranks are watched from outside alone (attach --pid): they have no hooks that"
            " could trace a step"
        )
    slow, peer, why = slowest_and_peer(ranks, roles, standing)
    pair = [slow] if peer is None else [slow, peer]
    if not request.ranks:
        return TraceChoice(sorted(pair), pair, why)
    wanted = sorted(set(request.ranks))
    if len(wanted) <= MOST_COMPARED:
        first = [rank for rank in request.ranks if rank in wanted]
        return TraceChoice(wanted, list(dict.fromkeys(first)), "as you asked")
    return TraceChoice(wanted, [rank for rank in pair if rank in wanted] or wanted[:2], why)


def slowest_and_peer(
    ranks: Mapping[int, RankReport], roles: Mapping[int, str], standing: SlownessReport | None
) -> tuple[int, int | None, str]:
    """The slowest rank, a healthy one with the same kind of work, and how we know."""
    judged = [] if standing is None else [one for one in standing.slow if one.ranks]
    ill = {rank for one in judged for rank in one.ranks}
    named = [one for one in judged if one.ranks[0] in ranks]
    if named:
        worst = max(named, key=lambda one: one.slowdown)
        slow = worst.ranks[0]
        why = f"rank {slow} is {worst.slowdown:.0%} slower than its peers ({worst.cause.value})"
    else:
        slow, why = _slowest_by_own_time(ranks, roles)
    peer = _healthy_peer(slow, ranks, roles, ill)
    return slow, peer, why if peer is not None else f"{why}; it has no peer of its role"


def _slowest_by_own_time(
    ranks: Mapping[int, RankReport], roles: Mapping[int, str]
) -> tuple[int, str]:
    excess = {
        number: rank.own_s / usual
        for number, rank in ranks.items()
        if rank.own_s > 0 and (usual := _usual_own_s(number, ranks, roles)) > 0
    }
    if not excess:
        return min(ranks), "no rank is known to be slow, nor any rank's own time"
    slow = max(excess, key=lambda number: (excess[number], -number))
    return slow, (
        f"no rank is judged slow; rank {slow} has the longest own time beside its peers"
        f" ({excess[slow] - 1:+.0%})"
    )


def _peers(
    number: int, ranks: Mapping[int, RankReport], roles: Mapping[int, str]
) -> dict[int, float]:
    """Others with the same kind of work -> their own time."""
    role = roles.get(number, "")
    return {
        other: rank.own_s
        for other, rank in ranks.items()
        if other != number and roles.get(other, "") == role
    }


def _usual_own_s(number: int, ranks: Mapping[int, RankReport], roles: Mapping[int, str]) -> float:
    known = [own for own in _peers(number, ranks, roles).values() if own > 0]
    return statistics.median(known) if known else 0.0


def _healthy_peer(
    slow: int, ranks: Mapping[int, RankReport], roles: Mapping[int, str], ill: Iterable[int]
) -> int | None:
    """The one that is most like the others: not the quickest, which may have the least to do."""
    peers = _peers(slow, ranks, roles)
    healthy = {other: own for other, own in peers.items() if other not in set(ill)} or peers
    if not healthy:
        return None
    usual = statistics.median(healthy.values())
    return min(healthy, key=lambda other: (abs(healthy[other] - usual), other))


def step_to_trace(
    request: Request, ranks: Mapping[int, RankReport], margin_s: float
) -> int | TraceRefused:
    """The step to trace from: one that every rank hears of in time, and reaches in time."""
    earliest = checkpoint_order.step_to_arm(ranks, margin_s, 0) + WARM_UP_STEPS
    if request.at_step and request.at_step < earliest:
        furthest = max(rank.step for rank in ranks.values())
        return TraceRefused(
            f"step {request.at_step} is too soon: a rank is at {furthest}, and all can have heard"
            f" of it by step {earliest}"
        )
    step = request.at_step or earliest
    ahead_s = checkpoint_order.seconds_until(step + request.steps, ranks)
    if ahead_s > patience_s(request):
        return TraceRefused(
            f"step {step} and what is traced from there is {math.ceil(ahead_s)} s away,"
            f" more than the {patience_s(request):g} s that you want to wait (--timeout)"
        )
    return step


def patience_s(request: Request) -> float:
    """How long who asks wants to wait."""
    return request.for_s or PATIENCE_S


def judge(
    order: TraceOrder,
    plan: Plan,
    nodes: Mapping[str, NodeReport],
    ranks: Mapping[int, RankReport],
    is_wanted: bool,
    armed_for_s: float,
) -> Taken | TraceTooLate | TraceVoid | TracePending:
    """What became of an armed order. is_wanted: whether whoever asked still waits."""
    if not is_wanted:
        return TraceVoid("nobody waits for it any more")
    traced = traced_ranks(order, nodes)
    if plan.attempt != order.attempt or plan.state != "running":
        return _at_end(order, traced)
    if late := [rank for rank, one in traced.items() if one.state == "missed"]:
        return TraceTooLate(f"rank {min(late)} was past step {order.step} when it heard of it")
    is_late = armed_for_s > order.deadline_s
    told = [traced.get(rank, TracedRank(rank)) for rank in order.ranks]
    gone = [one.rank for one in told if _has_left(one, ranks.get(one.rank))]
    awaited = [one for one in told if one.rank not in gone and not _is_done(one, order)]
    if gone:  # the others may never get to the step without it
        awaited = [one for one in awaited if one.state in FILE_UNDER_WAY]
    if awaited and not is_late:
        return TracePending()
    if any(one.state == "saved" for one in told):
        return Taken(tuple(told))
    return TraceVoid(_why_none(order, told, ranks, gone))


def _at_end(order: TraceOrder, traced: Mapping[int, TracedRank]) -> Taken | TraceVoid:
    """Of an attempt: files that are there outlive it."""
    if any(one.state == "saved" for one in traced.values()):
        return Taken(tuple(traced.get(rank, TracedRank(rank)) for rank in order.ranks))
    return TraceVoid("the attempt ended")


def why_no_trace(one: TracedRank) -> str:
    """Of a rank that has none: what it said, else what its state comes to."""
    return one.error or WHY_NOT.get(one.state, one.state)


def traced_ranks(order: TraceOrder, nodes: Mapping[str, NodeReport]) -> dict[int, TracedRank]:
    """What the sidecars say of the order's ranks."""
    parts = [node.traced for node in nodes.values() if node.traced is not None]
    return {
        one.rank: one
        for part in parts
        if part.identifier == order.identifier
        for one in part.ranks
        if one.rank in order.ranks
    }


def _has_left(one: TracedRank, rank: RankReport | None) -> bool:
    """Whether it ended before its trace was there; one that ends waits for its file, though."""
    if one.state in DONE:
        return False
    if rank is None or not rank.alive:
        return True
    return rank.ending != 0 and one.state != "saving"


def _is_done(one: TracedRank, order: TraceOrder) -> bool:
    if one.state != "saved":
        return one.state in DONE
    return one.is_summed_up or one.rank not in order.compared


def _why_none(
    order: TraceOrder,
    told: list[TracedRank],
    ranks: Mapping[int, RankReport],
    gone: list[int],
) -> str:
    if errors := [f"rank {one.rank}: {one.error}" for one in told if one.error]:
        return errors[0]
    if gone:
        return f"rank {gone[0]} ended before step {order.step + order.steps}"
    if failed := [one for one in told if one.state == "failed"]:
        return f"rank {failed[0].rank}: {why_no_trace(failed[0])}"
    known = [rank for rank in order.ranks if rank in ranks]
    if not known:
        return "its ranks have left"
    behind = min(known, key=lambda rank: (ranks[rank].step, rank))
    return (
        f"rank {behind} is at step {ranks[behind].step} and did not get to"
        f" {order.step + order.steps} within {order.deadline_s:g} s"
    )
