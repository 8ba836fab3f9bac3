"""What the members of a group wait for: its oldest collective that is not complete."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from holdfast_sidecar.records.collectives import Call, RankTrace, Standing

ROOTED = frozenset({"broadcast", "_broadcast_oop", "reduce", "_reduce_oop", "gather", "scatter"})
"""Collectives from which a rank may leave, its part done, while others are still in them."""


@dataclass(frozen=True)
class Queue:
    """A group's oldest collective that is not complete, and who is where."""

    group: str
    backend: str
    name: str
    number: int
    members: tuple[int, ...]
    standings: Mapping[int, Standing]
    waiting: tuple[int, ...]
    absent: tuple[int, ...]
    unknown: tuple[int, ...]
    """Members whose recorder did not answer."""
    is_whole: bool
    """Whether something is known of every member."""

    @property
    def call(self) -> str:
        """The collective in words."""
        known = self._call()
        return f"{known or 'a collective'} (no. {self.number} of {self.name})"

    @property
    def needs_all(self) -> bool:
        """Whether nobody is through with it before all have entered it, as far as is known."""
        known = self._call()
        return known is not None and known.what not in ROOTED

    def _call(self) -> Call | None:
        calls = [c for rank in self.waiting for c in self.standings[rank].pending]
        return next((call for call in calls if call.number == self.number), None)


def find_queues(traces: Mapping[int, RankTrace]) -> Iterator[Queue]:
    """Groups in which somebody waits."""
    found: dict[tuple[str, str], dict[int, Standing]] = defaultdict(dict)
    members: dict[str, list[int]] = defaultdict(list)
    sizes: dict[str, int] = {}
    for rank, trace in sorted(traces.items()):
        for standing in trace.standings:
            found[standing.group, standing.backend][rank] = standing
        for name, size in trace.groups.items():
            members[name].append(rank)
            sizes[name] = size
    for (group, backend), standings in found.items():
        waiting = [rank for rank, standing in standings.items() if standing.is_waiting]
        if waiting:
            known = members[group] or list(standings)
            entered = {rank: traces[rank].entered(group, backend) for rank in known}
            number = _oldest(standings, waiting, entered)
            behind = (r for r, last in entered.items() if last is not None and last < number)
            yield Queue(
                group=group,
                backend=backend,
                name=next(iter(standings.values())).name,
                number=number,
                members=tuple(known),
                standings=standings,
                waiting=tuple(waiting),
                absent=tuple(behind),
                unknown=tuple(rank for rank, last in entered.items() if last is None),
                is_whole=len(known) >= sizes.get(group, 0) > 0,
            )


def _oldest(
    standings: Mapping[int, Standing], waiting: Iterable[int], entered: Mapping[int, int | None]
) -> int:
    """The first collective that somebody waits in and not all have entered, or the first at all."""
    pending = min(standings[rank].completed + 1 for rank in waiting)
    reached = [last for last in entered.values() if last is not None]
    all_entered = min(reached) < max(reached) and min(reached) >= pending
    return min(reached) + 1 if all_entered else pending
