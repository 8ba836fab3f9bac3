"""Where all ranks of an attempt stand, from what their nodes report of them. Pure.

Ranks are compared with those of their role alone. Of equal role are those whose launchers say so
(`--role`), whose scripts say so, and who hold the same stage of a pipeline. Where ranks send to one
another in each step and it is not known which stage each holds, nobody has the role of another.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from operator import itemgetter
from typing import NamedTuple

from holdfast_sidecar.performance.stragglers.placement import (
    PIPELINE,
    WITH,
    RankPlace,
    Stage,
    find_stages,
    parse_layout,
    parse_messages,
)
from holdfast_sidecar.records.plan import Plan
from holdfast_sidecar.records.reports import RankReport
from holdfast_sidecar.records.steps import ProcessGroup, StepLine, parse_groups

FoundStages = Mapping[int, Stage]
"""Rank -> the stage that its messages show."""


def find_places(
    nodes: Mapping[str, Iterable[RankReport]], roles: Mapping[int, str]
) -> dict[int, RankPlace]:
    """Of the ranks that are still at it. roles: rank -> what its launcher's `--role` says."""
    known = {node: tuple(ranks) for node, ranks in nodes.items()}
    stages = stages_of(rank for ranks in known.values() for rank in ranks)
    places: dict[int, RankPlace] = {}
    for node, ranks in known.items():
        places |= places_on(node, ranks, roles, stages)
    return places


def stages_of(ranks: Iterable[RankReport]) -> FoundStages:
    """Of all ranks there are, on whichever node: stages are neighbours over the network."""
    return _stages(tuple((one.rank, one.layout) for one in ranks if WITH in one.layout))


def places_on(
    node: str, ranks: Iterable[RankReport], roles: Mapping[int, str], stages: FoundStages
) -> dict[int, RankPlace]:
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
def _place(told: _Told) -> RankPlace:
    """Remembered, as it hardly ever changes and is asked of thousands of ranks every second."""
    coordinate, shape, called, micro_batches = parse_layout(told.layout)
    found = told.stage
    if found is not None and found is not UNKNOWN:
        coordinate = {**coordinate, PIPELINE: found.at}
        shape = {**shape, PIPELINE: found.of}
    stage = f"{PIPELINE} {coordinate[PIPELINE]}" if shape.get(PIPELINE, 1) > 1 else ""
    is_unknown = found is UNKNOWN and not stage and not called
    stage = f"stage of rank {told.rank}" if is_unknown else stage
    return RankPlace(
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


# Who is in which process group, worked out once per change of places, not per frame.

SOME = 16
"""Members of a group whose spread tells that of all."""

SLOTS = 4
"""Process groups per rank whose waits are told apart."""

UNDEFINED = "undefined"
"""What torch calls a group that the script gave no purpose."""


@dataclass(frozen=True)
class Circle:
    """One process group as the places tell it: its members, each with the slot of its own waits."""

    digest: str
    """Of its members; with what tells them apart where several groups have the same ones."""
    title: str
    size: int
    members: tuple[tuple[int, int], ...]
    """(rank, slot)"""
    nodes: frozenset[str]
    kin: tuple[str, int, frozenset[str]]
    """Groups of the same kin do the same: title, size, the roles of their members."""

    @property
    def name(self) -> str:
        """How people know it."""
        return self.title if self.title not in ("", UNDEFINED) else f"group {self.digest[:8]}"

    @cached_property
    def ranks(self) -> tuple[int, ...]:
        """Who is in it."""
        return tuple(sorted(rank for rank, _ in self.members))

    @cached_property
    def fetch(self) -> Callable[[Mapping[int, StepLine]], Sequence[StepLine]]:
        """The lines of all members in their order; KeyError where one is missing."""
        # An itemgetter of one thing gives no tuple.
        first = self.members[0][0]
        if len(self.members) == 1:
            return lambda lines: (lines[first],)
        return itemgetter(*(rank for rank, _ in self.members))

    @cached_property
    def ends(self) -> tuple[int, int]:
        """Its first member and its last."""
        return self.members[0][0], self.members[-1][0]

    @cached_property
    def some(self) -> tuple[int, ...]:
        """Members from all over it."""
        return self.ranks[:: -(-len(self.ranks) // SOME)]

    @cached_property
    def slot(self) -> int | None:
        """Where all members have its waits; None where they differ."""
        slots = {slot for _, slot in self.members}
        return slots.pop() if len(slots) == 1 else None

    @cached_property
    def is_whole(self) -> bool:
        """Whether all of its members are known."""
        return len(self.members) == self.size

    @property
    def crosses_nodes(self) -> bool:
        """Whether it needs the network."""
        return len(self.nodes) > 1


@dataclass
class RankGroups:
    """The groups of the places that were seen last."""

    _places: Mapping[int, RankPlace] | None = None
    _circles: tuple[Circle, ...] = field(default=())

    def read(self, places: Mapping[int, RankPlace]) -> tuple[Circle, ...]:
        """All groups of two ranks and more. The places are held, and nobody changes them there."""
        before, self._places = self._places, places
        if places is not before and places != before:
            self._circles = tuple(_circles(places))
        return self._circles


def _circles(places: Mapping[int, RankPlace]) -> list[Circle]:
    members: dict[str, list[tuple[int, int]]] = {}
    told: dict[str, ProcessGroup] = {}
    for rank, place in places.items():
        for key, slot, group in _told_apart(place.groups[:SLOTS]):
            members.setdefault(key, []).append((rank, slot))
            told[key] = group
    return [_circle(key, told[key], members[key], places) for key in sorted(members)]


def _told_apart(groups: Sequence[ProcessGroup | None]) -> Iterator[tuple[str, int, ProcessGroup]]:
    """Each group of two ranks and more under a name of its own, and its slot.

    Several may have the same members: the default group, a mesh's, one that is Holdfast's own. All
    ranks make them in the same order.
    """
    seen: Counter[tuple[str, str]] = Counter()
    for slot, group in enumerate(groups):
        if group is not None and group.size > 1 and group.digest:
            before = seen[group.digest, group.title]
            seen[group.digest, group.title] += 1
            yield f"{group.digest}/{group.title}" + f"/{before}" * (before > 0), slot, group


def _circle(
    digest: str,
    group: ProcessGroup,
    members: list[tuple[int, int]],
    places: Mapping[int, RankPlace],
) -> Circle:
    at = [places[rank] for rank, _ in members]
    return Circle(
        digest,
        group.title,
        group.size,
        tuple(members),
        frozenset(place.node for place in at),
        (group.title, group.size, frozenset(place.role for place in at)),
    )


# Which ranks meet all the time, and so are one unit of a step's model: its stage, its replica.

REPLICAS = frozenset({"dp", "dp_replicate", "dp_shard", "fsdp", "hsdp", "data", "replicate"})
"""Dimensions whose ranks meet once a step. In all others but the pipeline they meet in each layer,
and are one unit."""


@dataclass(frozen=True)
class ParallelLayout:
    """Which rank is in which unit, stage and replica."""

    units: Mapping[int, int]
    """rank -> its unit: the ranks that meet all the time."""
    members: tuple[tuple[int, ...], ...]
    """unit -> its ranks"""
    replica: tuple[int, ...]
    """unit -> its pipeline replica"""
    stage: tuple[int, ...]
    """unit -> its stage; 0 where there is no pipeline."""
    parts: tuple[tuple[int, ...], ...]
    """replica -> its units"""

    @property
    def stages(self) -> int:
        """How many there are."""
        return len(set(self.stage))

    @cached_property
    def row(self) -> Mapping[int, int]:
        """rank -> its place in a row of all ranks."""
        return {rank: at for at, rank in enumerate(self.units)}


def lay_out(places: Mapping[int, RankPlace]) -> ParallelLayout:
    """Ranks without coordinates are replicas of their own."""
    unit_of: dict[object, int] = {}
    replica_of: dict[object, int] = {}
    units: dict[int, int] = {}
    members: list[list[int]] = []
    replica: list[int] = []
    stage: list[int] = []
    for rank, place in places.items():
        at = place.coordinate
        is_known = bool(at)
        copy = tuple(sorted((d, c) for d, c in at.items() if d in REPLICAS)) if is_known else rank
        here = at.get(PIPELINE, 0)
        key = (copy, here)
        if key not in unit_of:
            unit_of[key] = len(members)
            members.append([])
            replica.append(replica_of.setdefault(copy, len(replica_of)))
            stage.append(here)
        units[rank] = unit_of[key]
        members[unit_of[key]].append(rank)
    parts: list[list[int]] = [[] for _ in replica_of]
    for unit, number in enumerate(replica):
        parts[number].append(unit)
    return ParallelLayout(
        units,
        tuple(map(tuple, members)),
        tuple(replica),
        tuple(stage),
        tuple(map(tuple, parts)),
    )
