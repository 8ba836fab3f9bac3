"""Where the collectives of a group's members part: which ranks came with another one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum

from holdfast_sidecar.records.collectives import (
    DIGEST,
    CollectiveCall,
    CollectiveState,
    RankTrace,
    what_follows,
)
from holdfast_sidecar.records.formatting import name_ranks

# What the members of a group wait for: its oldest collective that is not complete.

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
    standings: Mapping[int, CollectiveState]
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

    def _call(self) -> CollectiveCall | None:
        calls = [c for rank in self.waiting for c in self.standings[rank].pending]
        return next((call for call in calls if call.number == self.number), None)


def find_queues(traces: Mapping[int, RankTrace]) -> Iterator[Queue]:
    """Groups in which somebody waits."""
    found: dict[tuple[str, str], dict[int, CollectiveState]] = defaultdict(dict)
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
    standings: Mapping[int, CollectiveState],
    waiting: Iterable[int],
    entered: Mapping[int, int | None],
) -> int:
    """The first collective that somebody waits in and not all have entered, or the first at all."""
    pending = min(standings[rank].completed + 1 for rank in waiting)
    reached = [last for last in entered.values() if last is not None]
    all_entered = min(reached) < max(reached) and min(reached) >= pending
    return min(reached) + 1 if all_entered else pending


# Why a collective does not complete, who is to blame for it, and how sure that is.


class StuckCause(str, Enum):
    """Why a collective does not complete."""

    ABSENT = "absent"  # the culprits have not entered it, and wait for nobody
    PARTED = "parted"  # the culprits entered another collective in its place
    FINISHED = "finished"  # the culprits ended without entering it
    CROSSED = "crossed"  # the culprits wait for each other, in different groups or messages
    MUTE = "mute"  # all others have entered it; the culprits can't be asked
    ARRIVED = "arrived"  # all have entered the same one: nobody's doing, but the transport's


HOPELESS = frozenset({StuckCause.PARTED, StuckCause.FINISHED, StuckCause.CROSSED})
"""What can never complete, whatever any rank does next: positive evidence of a hang."""


MINORITY = 0.95
"""Sureness that who differs from all others is to blame."""


USUAL = 0.8
"""The same where two sides are of one size, and one does what the group's past makes one expect."""


NOT_THERE = 0.9
"""The same of a rank that all others wait for while it waits for nobody."""


NOT_ANSWERING = 0.7
"""The same of one that can't be asked, when all that can be have arrived."""


COUNTED = 0.5
"""The same by our own count of calls from Python, which sees no collective that DDP makes."""


@dataclass(frozen=True)
class Arrival:
    """One judgement. Confidence is 0 to 1, of all culprits together."""

    cause: StuckCause
    culprits: tuple[int, ...]
    waiting: tuple[int, ...]
    """The victims, as far as they are known."""
    confidence: float
    evidence: tuple[str, ...]
    signature: str = ""
    """What is the same when the program does it again; empty: its surroundings may be the cause."""

    may_pass: bool = False
    """Whether some of them may not be waiting at all, or for something that is on its way."""

    @property
    def is_hopeless(self) -> bool:
        """Whether it can never complete."""
        return self.cause in HOPELESS and not self.may_pass


YOUNG = 8
"""A group in which no more collectives were entered by anybody has no past to agree on."""


@dataclass(frozen=True)
class _Side:
    """Ranks that entered the same collective at one number."""

    digest: str
    ranks: list[int] = field(default_factory=list)


def find_divergence(queue: Queue) -> Arrival | None:
    """Where the members' collectives part, if they do."""
    pasts: dict[tuple[int, str], list[int]] = defaultdict(list)
    for rank, standing in queue.standings.items():
        pasts[standing.entered, standing.history].append(rank)
    if len(pasts) < 2:
        return None  # the ordinary case, of however many ranks
    reference = {ranks[0]: ranks for ranks in pasts.values()}
    if not _keeps_somebody(queue, reference):
        return None
    is_young = max(standing.entered for standing in queue.standings.values()) <= YOUNG
    have_agreed = is_young
    for number in _numbers(queue, reference):
        sides: dict[str, _Side] = {}
        for rank, alike in reference.items():
            digest = queue.standings[rank].digest(number)
            if digest:
                sides.setdefault(digest, _Side(digest)).ranks.extend(alike)
        if len(sides) > 1:
            # Without a common past these may be two groups of one name, one made after the other.
            return _tell_parted(queue, number, list(sides.values())) if have_agreed else None
        have_agreed = have_agreed or sum(len(side.ranks) for side in sides.values()) > 1
    return None


def _keeps_somebody(queue: Queue, reference: Mapping[int, list[int]]) -> bool:
    """Whether somebody still waits in one that others entered otherwise: calls that were taken for
    each other and completed keep nobody."""
    oldest = min(queue.standings[rank].completed + 1 for rank in queue.waiting)
    for number in range(oldest, max(one.entered for one in queue.standings.values()) + 1):
        entered = {
            digest: ranks
            for rank, ranks in reference.items()
            if (digest := queue.standings[rank].digest(number))
        }
        if len(entered) > 1 and any(
            queue.standings[rank].completed < number for ranks in entered.values() for rank in ranks
        ):
            return True
    return False


def _numbers(queue: Queue, ranks: Iterable[int]) -> Iterable[int]:
    """All that some history reaches, oldest first."""
    standings = [queue.standings[rank] for rank in ranks]
    oldest = min(one.entered - len(one.history) // DIGEST + 1 for one in standings)
    return range(oldest, max(one.entered for one in standings) + 1)


def _tell_parted(queue: Queue, number: int, sides: list[_Side]) -> Arrival:
    sides = sorted(sides, key=lambda side: (-len(side.ranks), min(side.ranks)))
    right, confidence = sides[0], MINORITY
    if len(sides[0].ranks) == len(sides[1].ranks):
        usual = _expected(queue.standings[right.ranks[0]], number)
        named = [side for side in sides if side.digest == usual]
        right, confidence = (named[0], USUAL) if named else (right, 0.5)
    culprits = sorted(rank for side in sides if side is not right for rank in side.ranks)
    wrong = next(side for side in sides if side is not right)
    came = _call(queue, wrong, number)
    meant = _call(queue, right, number)
    evidence = [
        f"{name_ranks(wrong.ranks)} entered {came} as no. {number} of"
        f" {queue.name}, where {name_ranks(right.ranks)} entered {meant}"
    ]
    if _expected(queue.standings[right.ranks[0]], number + 1) == wrong.digest:
        evidence.append(f"that is what comes after {meant}: as if it had been skipped")
    return Arrival(
        StuckCause.PARTED,
        tuple(culprits),
        tuple(rank for rank in queue.waiting if rank not in culprits),
        confidence,
        tuple(evidence),
        signature=f"{name_ranks(culprits)} entered {came} where others entered {meant}",
    )


def _call(queue: Queue, side: _Side, number: int) -> str:
    calls: list[CollectiveCall] = [c for rank in side.ranks for c in queue.standings[rank].pending]
    return next((str(call) for call in calls if call.number == number), "another collective")


def _expected(standing: CollectiveState, number: int) -> str:
    """Digest of the collective that the group's past makes one expect at this number; or empty."""
    oldest = standing.entered - len(standing.history) // DIGEST + 1
    return what_follows([standing.digest(n) for n in range(oldest, number)])
