"""Where all ranks of an attempt stand, from what their nodes report of them. Pure.

Ranks are compared with those of their role alone. Of equal role are those whose launchers say so
(`--role`), whose scripts say so, and who hold the same stage of a pipeline. Where ranks send to one
another in each step and it is not known which stage each holds, nobody has the role of another.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple

from holdfast_sidecar.performance.stragglers.placement import (
    PIPELINE,
    WITH,
    Place,
    Stage,
    find_stages,
    parse_layout,
    parse_messages,
)
from holdfast_sidecar.records.plan import Plan
from holdfast_sidecar.records.reports import RankReport
from holdfast_sidecar.records.steps import parse_groups

FoundStages = Mapping[int, Stage]
"""Rank -> the stage that its messages show."""


def find_places(
    nodes: Mapping[str, Iterable[RankReport]], roles: Mapping[int, str]
) -> dict[int, Place]:
    """Of the ranks that are still at it. roles: rank -> what its launcher's `--role` says."""
    known = {node: tuple(ranks) for node, ranks in nodes.items()}
    stages = stages_of(rank for ranks in known.values() for rank in ranks)
    places: dict[int, Place] = {}
    for node, ranks in known.items():
        places |= places_on(node, ranks, roles, stages)
    return places


def stages_of(ranks: Iterable[RankReport]) -> FoundStages:
    """Of all ranks there are, on whichever node: stages are neighbours over the network."""
    return _stages(tuple((one.rank, one.layout) for one in ranks if WITH in one.layout))


def places_on(
    node: str, ranks: Iterable[RankReport], roles: Mapping[int, str], stages: FoundStages
) -> dict[int, Place]:
    """Those of one node's ranks."""
    return {
        one.rank: _place(
            _Told(
                one.rank,
                node,
                one.layout,
                tuple(one.groups),
                roles.get(one.rank),
                stages.get(one.rank),
                one.memory_total > 0,
                one.is_gloo_alone,
            )
        )
        for one in ranks
        if one.alive and not one.has_finished
    }


UNKNOWN = Stage(-1, 0)


@lru_cache(maxsize=4)
def _stages(layouts: tuple[tuple[int, str], ...]) -> FoundStages:
    """Of the ranks whose messages say that they may be stages, and of those they name."""
    told = {rank: one for rank, text in layouts if (one := parse_messages(text)) is not None}
    named = {*told, *(peer for one in told.values() for peer in one.beside)}
    return find_stages(told) or dict.fromkeys(named, UNKNOWN)


class _Told(NamedTuple):
    """All that a rank's place follows from."""

    rank: int
    node: str
    layout: str
    groups: tuple[str, ...]
    launched_as: str | None
    stage: Stage | None
    has_device: bool
    is_gloo_alone: bool


@lru_cache(maxsize=16384)
def _place(told: _Told) -> Place:
    """Remembered, as it hardly ever changes and is asked of thousands of ranks every second."""
    coordinate, shape, called, micro_batches = parse_layout(told.layout)
    found = told.stage
    if found is not None and found is not UNKNOWN:
        coordinate = {**coordinate, PIPELINE: found.at}
        shape = {**shape, PIPELINE: found.of}
    stage = f"{PIPELINE} {coordinate[PIPELINE]}" if shape.get(PIPELINE, 1) > 1 else ""
    is_unknown = found is UNKNOWN and not stage and not called
    stage = f"stage of rank {told.rank}" if is_unknown else stage
    return Place(
        rank=told.rank,
        node=told.node,
        role=", ".join(filter(None, (told.launched_as, called, stage))),
        coordinate=coordinate,
        shape=shape,
        groups=parse_groups(list(told.groups)),
        is_unknown_stage=is_unknown,
        has_device=told.has_device,
        is_host_only=told.is_gloo_alone and not told.has_device,
        micro_batches=micro_batches,
    )


# What part ranks have in the job, as torchrun's --role says: a rank is slow beside its own kind.
#
# All ranks of a node have the role of its launcher; nothing is known of coordinates within a role.


def read_roles(plan: Plan | None, attempt: int) -> dict[int, str]:
    """rank -> its role in this attempt; empty where all have the same, or the plan is another's."""
    if plan is None or plan.attempt != attempt:
        return {}
    if len({member.role for member in plan.members}) < 2:
        return {}
    return {rank: member.role for member in plan.members for rank in member.ranks}
