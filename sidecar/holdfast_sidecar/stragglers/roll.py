"""Who is in which process group, worked out once per change of places, not per frame."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import itemgetter

from holdfast_sidecar.records.steps import StepLine
from holdfast_sidecar.stragglers.place import Place

SLOTS = 4
"""Process groups per rank whose waits are told apart."""


@dataclass(frozen=True)
class Circle:
    """One process group as the places tell it: its members, each with the slot of its own waits."""

    digest: str
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
        return self.title or f"group {self.digest[:8]}"

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
class Roll:
    """The groups of the places that were seen last."""

    _places: Mapping[int, Place] | None = None
    _circles: tuple[Circle, ...] = field(default=())

    def read(self, places: Mapping[int, Place]) -> tuple[Circle, ...]:
        """All groups of two ranks and more."""
        if self._places is None or (places is not self._places and places != self._places):
            self._places = dict(places)
            self._circles = tuple(_circles(places))
        return self._circles


def _circles(places: Mapping[int, Place]) -> list[Circle]:
    members: dict[str, list[tuple[int, int]]] = {}
    told: dict[str, tuple[str, int]] = {}
    for rank, place in places.items():
        for slot, group in enumerate(place.groups[:SLOTS]):
            if group is not None and group.size > 1 and group.digest:
                members.setdefault(group.digest, []).append((rank, slot))
                told[group.digest] = (group.title, group.size)
    return [_circle(digest, *told[digest], members[digest], places) for digest in sorted(members)]


def _circle(
    digest: str,
    title: str,
    size: int,
    members: list[tuple[int, int]],
    places: Mapping[int, Place],
) -> Circle:
    at = [places[rank] for rank, _ in members]
    return Circle(
        digest,
        title,
        size,
        tuple(members),
        frozenset(place.node for place in at),
        (title, size, frozenset(place.role for place in at)),
    )
