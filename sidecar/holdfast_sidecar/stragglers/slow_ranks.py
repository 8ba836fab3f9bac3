"""Troubles of single ranks, put together where they are their host's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from holdfast_sidecar.records.steps import Cause
from holdfast_sidecar.stragglers.causes import Named
from holdfast_sidecar.stragglers.frame import Excess
from holdfast_sidecar.stragglers.place import Place
from holdfast_sidecar.stragglers.step_model import StepModel
from holdfast_sidecar.stragglers.trouble import Trouble
from holdfast_sidecar.stragglers.what_if import as_its_peers

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
    return excess.own_us / max(1.0, excess.usual_us) - 1
