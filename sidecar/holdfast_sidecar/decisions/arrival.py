"""Who keeps a collective from completing: not arrived, gone, or come with another collective. Pure.

A rank that itself waits for others is a victim and is never named, however long it has waited.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum

from holdfast_sidecar.collective_trace import (
    DIGEST,
    Call,
    RankTrace,
    Standing,
    what_follows,
)
from holdfast_sidecar.decisions.deadlock import deadlocked
from holdfast_sidecar.naming import name_ranks, who_has, who_wait


class Cause(str, Enum):
    """Why a collective does not complete."""

    ABSENT = "absent"  # the culprits have not entered it, and wait for nobody
    PARTED = "parted"  # the culprits entered another collective in its place
    FINISHED = "finished"  # the culprits ended without entering it
    CROSSED = "crossed"  # the culprits wait for each other, in different groups or messages
    MUTE = "mute"  # all others have entered it; the culprits can't be asked
    ARRIVED = "arrived"  # all have entered the same one: nobody's doing, but the transport's


HOPELESS = frozenset({Cause.PARTED, Cause.FINISHED, Cause.CROSSED})
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


ROOTED = frozenset({"broadcast", "_broadcast_oop", "reduce", "_reduce_oop", "gather", "scatter"})
"""Collectives from which a rank may leave, its part done, while others are still in them."""

YOUNG = 8
"""A group in which no more collectives were entered by anybody has no past to agree on."""


@dataclass(frozen=True)
class Arrival:
    """One judgement. Confidence is 0 to 1, of all culprits together."""

    cause: Cause
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


def judge_late(
    traces: Mapping[int, RankTrace], ended: Collection[int], world_size: int
) -> Arrival | None:
    """The judgement, None while nobody waits too long: unless it is for what can never complete,
    and nobody concerned has moved for a while."""
    if not traces:
        return None
    arrival = judge(traces, ended, world_size)
    if arrival is None or any(trace.is_overdue for trace in traces.values()):
        return arrival
    return arrival if arrival.is_hopeless and stand(arrival, traces) else None


def stand(arrival: Arrival, traces: Mapping[int, RankTrace]) -> bool:
    """Whether nobody concerned has moved for a while: what is told is no snapshot of movement."""
    involved = {*arrival.culprits, *arrival.waiting}
    told = [traces[rank] for rank in involved if rank in traces]
    return all(trace.stands for trace in told if trace.answered)


def judge(
    traces: Mapping[int, RankTrace], ended: Collection[int], world_size: int
) -> Arrival | None:
    """The judgement over all groups; None while nobody waits, or too little is known.

    traces: of every rank that was asked. ended: ranks that ended well.
    """
    queues = list(_queues(traces))
    for queue in queues:
        if (parted := _parted(queue)) is not None:
            return parted
    if any(not queue.is_whole for queue in queues):
        return None
    waiting = {rank for queue in queues for rank in queue.waiting}
    for queue in queues:
        missing, gone = {*queue.absent, *queue.unknown}, set(ended)
        # Who ended may have entered it, as who sends its part to another and leaves: while somebody
        # else is still to come, it is that one who is waited for.
        if missing & gone and missing - gone <= waiting:
            return _finished(queue, sorted(missing & gone))
    if any(trace.standings for trace in traces.values()):
        return _blocking(queues, traces)
    return _counted(traces, ended) if len(traces) >= world_size > 1 else None


def _queues(traces: Mapping[int, RankTrace]) -> Iterator[Queue]:
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


@dataclass(frozen=True)
class _Side:
    """Ranks that entered the same collective at one number."""

    digest: str
    ranks: list[int] = field(default_factory=list)


def _parted(queue: Queue) -> Arrival | None:
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


def _finished(queue: Queue, gone: list[int]) -> Arrival:
    may_pass = not queue.needs_all
    words = f"{name_ranks(gone)} ended without having entered it"
    if may_pass:
        words += ", or before the others were through"
    return Arrival(
        Cause.FINISHED,
        tuple(gone),
        queue.waiting,
        MINORITY,
        (f"{who_wait(queue.waiting)} in {queue.call}; {words}",),
        signature=""
        if may_pass
        else f"{name_ranks(gone)} ended before a collective that others entered",
        may_pass=may_pass,
    )


def _blocking(queues: list[Queue], traces: Mapping[int, RankTrace]) -> Arrival | None:
    """Follow who waits for whom to those who wait for nobody."""
    waits_for: dict[int, set[int]] = defaultdict(set)
    for queue in queues:
        for rank in queue.waiting:
            waits_for[rank] |= {*queue.absent, *queue.unknown} - {rank}
    for rank, trace in traces.items():
        if trace.messages_to:
            waits_for[rank] |= set(trace.messages_to)
    if not waits_for:
        return None
    if stuck := deadlocked(traces):
        return _crossed(queues, _cycle(stuck), traces, tuple(sorted(waits_for)), may_pass=False)
    targets = {to for each in waits_for.values() for to in each}
    awaited_surely = {rank for queue in queues for rank in queue.absent}
    awaited_surely |= {to for trace in traces.values() for to in trace.messages_to}
    mute = sorted(
        rank
        for rank in targets
        if not _answered(traces, rank) or (rank not in awaited_surely and not waits_for.get(rank))
    )
    awaited = targets - set(mute)
    idle = {rank for rank in awaited if not waits_for.get(rank)}
    # Who is in a collective that all have entered, or awaits a message of nobody knows whom, is
    # named only when there is no better one.
    busy = {rank for rank in idle if rank in waits_for or traces[rank].awaits_message}
    roots = sorted(idle - busy or idle)
    waiting = tuple(sorted({*waits_for, *busy} - set(roots)))
    if roots:
        return _absent(queues, roots, waiting, is_sure=not mute)
    if mute:
        return _mute(queues, mute, waiting)
    if awaited:
        cycle = _cycle({rank: min(others) for rank, others in waits_for.items() if others})
        return _crossed(queues, cycle, traces, waiting, may_pass=True)
    told = tuple(f"every member has entered {queue.call}" for queue in queues)
    return Arrival(Cause.ARRIVED, (), waiting, 0.0, told)


def _answered(traces: Mapping[int, RankTrace], rank: int) -> bool:
    return rank in traces and traces[rank].answered


def _absent(
    queues: list[Queue], roots: list[int], waiting: tuple[int, ...], is_sure: bool
) -> Arrival:
    lines = [
        f"{who_wait(queue.waiting)} in {queue.call}, which"
        f" {who_has(set(queue.absent) & set(roots))} not entered"
        for queue in queues
        if set(queue.absent) & set(roots)
    ]
    if not lines:
        lines = [f"{who_wait(waiting)} for a message of {name_ranks(roots)}"]
    sureness = (NOT_THERE if is_sure else NOT_ANSWERING) / len(roots)
    return Arrival(Cause.ABSENT, tuple(roots), waiting, round(sureness, 2), tuple(lines))


def _mute(queues: list[Queue], mute: list[int], waiting: tuple[int, ...]) -> Arrival:
    calls = [queue.call for queue in queues if set(queue.unknown) & set(mute)]
    where = f" in {calls[0]}" if calls else ""
    line = f"{who_wait(waiting)}{where}; {name_ranks(mute)} can't be asked"
    return Arrival(Cause.MUTE, tuple(mute), waiting, round(NOT_ANSWERING / len(mute), 2), (line,))


def _crossed(
    queues: list[Queue],
    cycle: list[int],
    traces: Mapping[int, RankTrace],
    waiting: tuple[int, ...],
    may_pass: bool,
) -> Arrival:
    """may_pass: a collective or a message may have been started long before it is waited for."""
    crossing = [queue for queue in queues if set(queue.waiting) & set(cycle)]
    culprits, confidence = _who_crossed(crossing, traces)
    culprits = culprits or cycle
    lines = [f"{who_wait(queue.waiting)} in {queue.call}" for queue in crossing]
    doubt = ", as far as can be told" if may_pass else ""
    lines.append(f"{who_wait(cycle)} for each other{doubt}")
    if len(culprits) < len(cycle):
        calls = [queue.call for queue in crossing if set(queue.waiting) & set(culprits)]
        lines.insert(0, f"{name_ranks(culprits)} came to {' and '.join(calls)} out of turn")
    return Arrival(
        Cause.CROSSED,
        tuple(culprits),
        tuple(rank for rank in waiting if rank not in culprits),
        confidence,
        tuple(lines),
        signature="" if may_pass else f"{name_ranks(culprits)} came to a collective out of turn",
        may_pass=may_pass,
    )


def _who_crossed(queues: list[Queue], traces: Mapping[int, RankTrace]) -> tuple[list[int], float]:
    """Who left out a collective of one group and went on in another: whose past says so, and says
    it latest (what all do now and then is no fault of one); else the few."""
    waiting = {rank for queue in queues for rank in queue.waiting}
    turns = {rank: traces[rank].out_of_turn for rank in waiting}
    latest = min((turn for turn in turns.values() if turn >= 0), default=-1)
    odd = sorted(rank for rank, turn in turns.items() if turn == latest)
    if latest >= 0 and len(odd) < len(waiting):
        return odd, NOT_THERE if 2 * len(odd) < len(waiting) else USUAL
    by_size = sorted(queues, key=lambda queue: len(queue.waiting))
    if len(by_size) > 1 and len(by_size[0].waiting) < len(by_size[1].waiting):
        return sorted(by_size[0].waiting), NOT_ANSWERING
    return [], COUNTED


def _cycle(waits_for: Mapping[int, int]) -> list[int]:
    """Ranks that wait for each other, found from the lowest one that is waited for."""
    path = [min(waits_for.values())]
    while (following := waits_for[path[-1]]) not in path:
        path.append(following)
    return sorted(path[path.index(following) :])


def _counted(traces: Mapping[int, RankTrace], ended: Collection[int]) -> Arrival | None:
    """By our own count, where there is no recorder, and one group at most. That is no proof: it
    can't say that a rank which ended was waited for."""
    if any(len(trace.groups) > 1 for trace in traces.values()):
        return None
    inside = sorted(r for r, trace in traces.items() if trace.calls_entered > trace.calls_left)
    outside = sorted(set(traces) - set(inside))
    if not inside or any(traces[rank].in_backward for rank in outside):
        return None
    if gone := sorted(set(outside) & set(ended)):
        line = f"{who_wait(inside)} in a collective; {name_ranks(gone)} ended"
        return Arrival(Cause.FINISHED, tuple(gone), tuple(inside), COUNTED, (line,), may_pass=True)
    if not outside:
        fewest = min(traces[rank].calls_entered for rank in inside)
        outside = [rank for rank in inside if traces[rank].calls_entered == fewest]
        if len(outside) == len(inside):
            return None
        inside = [rank for rank in inside if rank not in outside]
        line = f"{name_ranks(outside)} entered fewer collectives than {name_ranks(inside)}"
    else:
        line = f"{who_wait(inside)} in a collective, {who_has(outside)} entered none"
    return Arrival(
        Cause.ABSENT, tuple(outside), tuple(inside), round(COUNTED / len(outside), 2), (line,)
    )
