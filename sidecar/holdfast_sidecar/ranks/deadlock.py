"""Who waits for whom, followed to those who wait for nobody, or for each other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping

from holdfast_sidecar.ranks.collectives import (
    COUNTED,
    MINORITY,
    NOT_ANSWERING,
    NOT_THERE,
    USUAL,
    Arrival,
    Queue,
    StuckCause,
    find_divergence,
    find_queues,
)
from holdfast_sidecar.records.collectives import CollectiveState, RankTrace
from holdfast_sidecar.records.formatting import name_ranks, who_has, who_wait

# Which ranks wait for each other for ever, in collectives of different groups. Pure.
#
# Sequence numbers say what has been entered, and not what is waited for: a collective that was only
# started keeps nobody, and whoever computes will enter the rest. So only ranks that rest count.

Entered = Mapping[tuple[str, str], Mapping[int, int]]
"""Group and backend -> rank -> number of the last collective that it entered there."""


def deadlocked(traces: Mapping[int, RankTrace]) -> dict[int, int]:
    """Ranks none of which can ever go on -> one of them that each waits for; mostly none.

    In whichever of its pending collectives such a rank waits, one of these ranks is missing: which
    of them it is that the rank waits in, nobody tells.
    """
    stuck = {rank for rank, trace in traces.items() if _waits_for_a_collective(trace)}
    entered = _entered(stuck, traces)
    while stuck:
        laggards = {rank: _laggards(traces[rank], stuck, entered) for rank in stuck}
        held = {rank for rank, each in laggards.items() if None not in each}
        if held == stuck:
            return {
                rank: min(one for one in each if one is not None) for rank, each in laggards.items()
            }
        stuck = held
    return {}


def _waits_for_a_collective(trace: RankTrace) -> bool:
    # Who also awaits a message may rest until that comes.
    return (
        trace.answered
        and trace.rests
        and not trace.messages_to
        and any(standing.is_waiting for standing in trace.standings)
    )


def _entered(ranks: Collection[int], traces: Mapping[int, RankTrace]) -> Entered:
    found: dict[tuple[str, str], dict[int, int]] = defaultdict(dict)
    places = {(one.group, one.backend) for rank in ranks for one in traces[rank].standings}
    for group, backend in places:
        for rank in ranks:
            number = traces[rank].entered(group, backend)
            if group in traces[rank].groups and number is not None:
                found[group, backend][rank] = number
    return found


def _laggards(trace: RankTrace, stuck: Collection[int], entered: Entered) -> list[int | None]:
    """For each group in which it waits, who of these has not entered what is pending; or None."""
    return [_laggard(one, stuck, entered) for one in trace.standings if one.is_waiting]


def _laggard(standing: CollectiveState, stuck: Collection[int], entered: Entered) -> int | None:
    """The one that has entered least, if it has not even entered the oldest that is pending: while
    all are in that one it may be complete any moment, whatever comes after it."""
    members = entered[standing.group, standing.backend]
    behind = ((number, rank) for rank, number in members.items() if rank in stuck)
    number, rank = min(behind, default=(standing.entered, -1))
    return rank if number <= standing.completed else None


def follow_waits(queues: list[Queue], traces: Mapping[int, RankTrace]) -> Arrival | None:
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
    return Arrival(StuckCause.ARRIVED, (), waiting, 0.0, told)


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
    return Arrival(StuckCause.ABSENT, tuple(roots), waiting, round(sureness, 2), tuple(lines))


def _mute(queues: list[Queue], mute: list[int], waiting: tuple[int, ...]) -> Arrival:
    calls = [queue.call for queue in queues if set(queue.unknown) & set(mute)]
    where = f" in {calls[0]}" if calls else ""
    line = f"{who_wait(waiting)}{where}; {name_ranks(mute)} can't be asked"
    return Arrival(
        StuckCause.MUTE, tuple(mute), waiting, round(NOT_ANSWERING / len(mute), 2), (line,)
    )


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
        StuckCause.CROSSED,
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


# Who keeps a collective from completing: not arrived, gone, or come with another collective. Pure.
#
# A rank that itself waits for others is a victim and is never named, however long it has waited.

GLOO = "gloo"
"""A group's backend, as flight recorders name it."""


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


def rests_on_nccl(arrival: Arrival, traces: Mapping[int, RankTrace]) -> bool:
    """Whether what is told of somebody concerned was numbered by another library than gloo.

    NCCL's recorder lets coalesced calls and messages share or use up numbers, and stages of a
    pipeline may rightly enter different ones: that was never run to the end on several GPUs.
    """
    involved = {*arrival.culprits, *arrival.waiting}
    told = [traces[rank] for rank in involved if rank in traces]
    return any(trace.messages_to for trace in told) or any(  # gloo records no messages
        one.is_waiting and one.backend != GLOO for trace in told for one in trace.standings
    )


def judge(
    traces: Mapping[int, RankTrace], ended: Collection[int], world_size: int
) -> Arrival | None:
    """The judgement over all groups; None while nobody waits, or too little is known.

    traces: of every rank that was asked. ended: ranks that ended well.
    """
    queues = list(find_queues(traces))
    for queue in queues:
        if (parted := find_divergence(queue)) is not None:
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
        return follow_waits(queues, traces)
    return judge_by_count(traces, ended) if len(traces) >= world_size > 1 else None


def _finished(queue: Queue, gone: list[int]) -> Arrival:
    may_pass = not queue.needs_all
    words = f"{name_ranks(gone)} ended without having entered it"
    if may_pass:
        words += ", or before the others were through"
    return Arrival(
        StuckCause.FINISHED,
        tuple(gone),
        queue.waiting,
        MINORITY,
        (f"{who_wait(queue.waiting)} in {queue.call}; {words}",),
        signature=""
        if may_pass
        else f"{name_ranks(gone)} ended before a collective that others entered",
        may_pass=may_pass,
    )


def judge_by_count(traces: Mapping[int, RankTrace], ended: Collection[int]) -> Arrival | None:
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
        return Arrival(
            StuckCause.FINISHED, tuple(gone), tuple(inside), COUNTED, (line,), may_pass=True
        )
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
        StuckCause.ABSENT, tuple(outside), tuple(inside), round(COUNTED / len(outside), 2), (line,)
    )
