"""Which ranks meet all the time, and so are one unit of a step's model: its stage, its replica."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from holdfast_sidecar.stragglers.described_groups import PIPELINE
from holdfast_sidecar.stragglers.place import Place

REPLICAS = frozenset({"dp", "dp_replicate", "dp_shard", "fsdp", "hsdp", "data", "replicate"})
"""Dimensions whose ranks meet once a step. In all others but the pipeline they meet in each layer,
and are one unit."""


@dataclass(frozen=True)
class Layout:
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


def lay_out(places: Mapping[int, Place]) -> Layout:
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
    return Layout(
        units,
        tuple(map(tuple, members)),
        tuple(replica),
        tuple(stage),
        tuple(map(tuple, parts)),
    )
