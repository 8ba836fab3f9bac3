"""Who waits for whom, followed to those who wait for nobody, or for each other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from holdfast_sidecar.decisions.collective_queue import Queue
from holdfast_sidecar.decisions.deadlock import deadlocked
from holdfast_sidecar.decisions.lateness import (
    COUNTED,
    NOT_ANSWERING,
    NOT_THERE,
    USUAL,
    Arrival,
    Cause,
)
from holdfast_sidecar.records.collectives import RankTrace
from holdfast_sidecar.records.formatting import name_ranks, who_has, who_wait


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
