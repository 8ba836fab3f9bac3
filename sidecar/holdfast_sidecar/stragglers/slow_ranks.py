"""Troubles of single ranks, put together where they are their host's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from holdfast_sidecar.findings import Finding
from holdfast_sidecar.records.slowness import Cause
from holdfast_sidecar.stragglers.bursts import Recurring
from holdfast_sidecar.stragglers.causes import Named, name_cause
from holdfast_sidecar.stragglers.explanations import Case
from holdfast_sidecar.stragglers.frame import Excess
from holdfast_sidecar.stragglers.place import Place
from holdfast_sidecar.stragglers.step_model import StepModel
from holdfast_sidecar.stragglers.trouble import Trouble, lasts
from holdfast_sidecar.stragglers.what_if import as_its_peers
from holdfast_sidecar.stragglers.witness import hear

OF_HOSTS = frozenset({Cause.CPU_QUOTA, Cause.CPU_CONTENTION, Cause.MEMORY_PRESSURE, Cause.STORAGE})
"""Ranks of one node that are slow for the same one of these are one trouble: the host's."""

MOST_SINGLE = 8
"""Ranks with more work than others, told one by one; beyond, they are one trouble of all."""


def slow_ranks(
    excesses: Sequence[Excess],
    named: Mapping[int, Named],
    places: Mapping[int, Place],
    model: StepModel,
) -> list[Trouble]:
    """All whose cause was named."""
    known = [one for one in excesses if one.rank in named and one.rank in places]
    uneven = sum(named[one.rank].cause is Cause.UNEVEN_WORK for one in known)
    groups: dict[object, list[Excess]] = {}
    for one in known:
        cause, node = named[one.rank].cause, places[one.rank].node
        key: object = one.rank
        if cause in OF_HOSTS:
            key = (cause, node)
        elif cause is Cause.UNEVEN_WORK and uneven > MOST_SINGLE:
            key = cause
        groups.setdefault(key, []).append(one)
    return [_of_group(group, named, places, model) for group in groups.values()]


def recurring_ranks(
    found: Sequence[Recurring],
    places: Mapping[int, Place],
    findings: Sequence[Finding],
    step: int,
    step_s: float,
) -> list[Trouble]:
    """Those that are slow in some steps, again and again."""
    return [_of_recurring(one, places[one.rank], findings, step, step_s) for one in found]


SURE_OF_BURSTS = 0.9


def _of_recurring(
    one: Recurring, place: Place, findings: Sequence[Finding], step: int, step_s: float
) -> Trouble:
    excess = Excess(
        rank=one.rank,
        role=one.role,
        slowdown=one.slowdown,
        confidence=SURE_OF_BURSTS,
        since_step=one.since_step,
        steps=one.seen_steps,
        own_us=one.own_us,
        peers_us=one.peers_us,
    )
    # What is found about a node as a whole lasts, and would not come and go.
    witness = hear(findings, place, is_shared_by_mates=False)
    named = name_cause(Case(excess, one.own, one.peers, witness))
    often = (
        f"in {one.times} of {one.seen_steps} steps it takes "
        f"{one.own_us / max(1.0, one.peers_us) - 1:.0%} longer than its peers"
    )
    return Trouble(
        ranks=(one.rank,),
        node=place.node,
        role=one.role,
        named=replace(named, evidence=(often, *named.evidence)),
        slowdown=one.slowdown,
        confidence=SURE_OF_BURSTS,
        since_step=one.since_step,
        is_persistent=lasts(one.since_step, step, step_s),
        accounts=(f"rank {one.rank}",),
        costs_us=one.costs_us,
        known_gain=one.costs_us / max(1.0, one.usual_us),
    )


def _of_group(
    group: Sequence[Excess],
    named: Mapping[int, Named],
    places: Mapping[int, Place],
    model: StepModel,
) -> Trouble:
    worst = max(group, key=lambda one: one.own_us - one.peers_us)
    nodes = {places[one.rank].node for one in group}
    roles = {one.role for one in group}
    ranks = tuple(sorted(one.rank for one in group))
    return Trouble(
        ranks=ranks,
        node=nodes.pop() if len(nodes) == 1 else "",
        role=roles.pop() if len(roles) == 1 else "",
        named=named[worst.rank],
        slowdown=beyond_peers(worst, named[worst.rank].cause),
        confidence=max(one.confidence for one in group),
        since_step=min(one.since_step for one in group),
        is_persistent=any(one.is_persistent for one in group),
        accounts=tuple(f"rank {rank}" for rank in ranks),
        quick={rank: us for one in group for rank, us in as_its_peers(model, one).items()},
    )


def beyond_peers(excess: Excess, cause: Cause) -> float:
    """Of a rank that was given more work, what that makes of its time; else what it is slow by."""
    if cause is not Cause.UNEVEN_WORK:
        return excess.slowdown
    usual = excess.peers_us / max(0.1, 1 + excess.by_work)
    return excess.own_us / max(1.0, usual) - 1
