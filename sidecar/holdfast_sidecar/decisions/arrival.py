"""Who keeps a collective from completing: not arrived, gone, or come with another collective. Pure.

A rank that itself waits for others is a victim and is never named, however long it has waited.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from holdfast_sidecar.decisions.collective_parting import find_parting
from holdfast_sidecar.decisions.collective_queue import Queue, find_queues
from holdfast_sidecar.decisions.collective_waits import follow_waits
from holdfast_sidecar.decisions.lateness import COUNTED, MINORITY, Arrival, Cause
from holdfast_sidecar.records.collectives import RankTrace
from holdfast_sidecar.records.formatting import name_ranks, who_has, who_wait

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
        if (parted := find_parting(queue)) is not None:
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
