"""A rank whose own work takes longer than its peers', step after step.

In synchronous training every rank's step takes equally long; the slow one is the rank that waits
least. So own time is compared, with waiting removed, against the median of all other ranks of its
role: one that evaluates or serves parameters has steps of another kind.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

from holdfast.page import Record
from holdfast_sidecar.findings import Finding, Kind
from holdfast_sidecar.observation import (
    RECORDS_KEPT,
    Moment,
    RankHistory,
    Ranks,
    own_of,
    own_s,
    step_s,
)
from holdfast_sidecar.settings import StragglerSettings

SHARE_OF_STEP = 0.1
"""The excess must be at least this part of a step: half as much again of a forward pass that is
nothing beside the step costs nobody anything."""

LASTS_S = 2.0
"""Steps may be so short that eight of them fit into one time slice that another process got; a
straggler is slow for longer than that."""

WARM_UP_STEPS = 3
"""An attempt's first steps allocate, compile and rebuild buckets, each rank in its own time."""


def find_stragglers(ranks: Ranks, settings: StragglerSettings, moment: Moment) -> Iterator[Finding]:
    """One finding per local rank that is slow against those of its role on all nodes."""
    own = {rank: _own(history, settings) for rank, history in ranks.local.items()}
    elsewhere = {rank: peer.own_s for rank, peer in ranks.peers.items() if rank not in own}
    known = {rank: value for rank, value in (own | elsewhere).items() if value > 0}
    for rank, history in ranks.local.items():
        role = ranks.roles.get(rank)
        peers = [
            value
            for other, value in known.items()
            if other != rank and ranks.roles.get(other) == role
        ]
        if own[rank] > 0 and peers:
            finding = _judge(history, statistics.median(peers), settings, moment)
            if finding is not None:
                yield finding


def _own(history: RankHistory, settings: StragglerSettings) -> float:
    if history.look.has_finished or not _has_past(history, settings.steps):
        return 0.0
    return own_s(history.records, settings.steps)


def _has_past(history: RankHistory, steps: int) -> bool:
    """Whether there are enough steps beyond the first ones, and for long enough."""
    records = history.records
    if len(records) < steps + WARM_UP_STEPS:
        return False
    lasted_s = (records[-1].end_ns - records[WARM_UP_STEPS - 1].end_ns) / 1e9
    return lasted_s >= LASTS_S or len(records) == RECORDS_KEPT


def _latest(history: RankHistory, steps: int) -> tuple[Record, ...]:
    """The last so many steps, or more where they last less than `LASTS_S`."""
    since_ns = history.records[-1].end_ns - int(LASTS_S * 1e9)
    within = sum(record.end_ns > since_ns for record in history.records[WARM_UP_STEPS:])
    return history.records[-max(steps, within) :]


def quick_quarter_s(values_s: Sequence[float]) -> float:
    """The value that a quarter of them stay below."""
    return sorted(values_s)[len(values_s) // 4]


def _judge(
    history: RankHistory, peers_s: float, settings: StragglerSettings, moment: Moment
) -> Finding | None:
    # Three of four steps must have been slow, so the quick ones are what counts.
    mine_s = quick_quarter_s([own_of(record) for record in _latest(history, settings.steps)])
    whole_s = step_s(history.records, settings.steps)
    if mine_s <= settings.ratio * peers_s or mine_s - peers_s < SHARE_OF_STEP * whole_s:
        return None
    text = (
        f"rank {history.look.rank} spends at least {mine_s * 1e3:.1f} ms of a step on its own, "
        f"its peers {peers_s * 1e3:.1f} ms"
    )
    return Finding(
        kind=Kind.STRAGGLER,
        node=moment.node,
        since_unix_s=moment.now_unix_s,
        confidence=0.7,
        ranks=[history.look.rank],
        evidence=[text],
    )
