"""Where the collectives of a group's members part: which ranks came with another one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from holdfast_sidecar.decisions.collective_queue import Queue
from holdfast_sidecar.decisions.lateness import MINORITY, USUAL, Arrival, Cause
from holdfast_sidecar.records.collectives import DIGEST, Call, Standing, what_follows
from holdfast_sidecar.records.formatting import name_ranks

YOUNG = 8
"""A group in which no more collectives were entered by anybody has no past to agree on."""


@dataclass(frozen=True)
class _Side:
    """Ranks that entered the same collective at one number."""

    digest: str
    ranks: list[int] = field(default_factory=list)


def find_parting(queue: Queue) -> Arrival | None:
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
        Cause.PARTED,
        tuple(culprits),
        tuple(rank for rank in queue.waiting if rank not in culprits),
        confidence,
        tuple(evidence),
        signature=f"{name_ranks(culprits)} entered {came} where others entered {meant}",
    )


def _call(queue: Queue, side: _Side, number: int) -> str:
    calls: list[Call] = [c for rank in side.ranks for c in queue.standings[rank].pending]
    return next((str(call) for call in calls if call.number == number), "another collective")


def _expected(standing: Standing, number: int) -> str:
    """Digest of the collective that the group's past makes one expect at this number; or empty."""
    oldest = standing.entered - len(standing.history) // DIGEST + 1
    return what_follows([standing.digest(n) for n in range(oldest, number)])
