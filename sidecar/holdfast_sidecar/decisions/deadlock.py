"""Which ranks wait for each other for ever, in collectives of different groups. Pure.

Sequence numbers say what has been entered, and not what is waited for: a collective that was only
started keeps nobody, and whoever computes will enter the rest. So only ranks that rest count.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping

from holdfast_sidecar.records.collectives import RankTrace, Standing

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


def _laggard(standing: Standing, stuck: Collection[int], entered: Entered) -> int | None:
    """The one that has entered least, if it has not even entered the oldest that is pending: while
    all are in that one it may be complete any moment, whatever comes after it."""
    members = entered[standing.group, standing.backend]
    behind = ((number, rank) for rank, number in members.items() if rank in stuck)
    number, rank = min(behind, default=(standing.entered, -1))
    return rank if number <= standing.completed else None
