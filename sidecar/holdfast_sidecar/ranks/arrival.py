"""What the ranks' collectives tell of silence: whose it is, and what can never complete.

Ranks that wait for others are victims and no longer told as stalled once it is known for whom they
wait. Who is to blame by the collectives alone is for `ranks.deadlock`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Iterable

from holdfast.contract.page import Phase
from holdfast_sidecar.config.settings import StallSettings
from holdfast_sidecar.ranks.collectives import Arrival, StuckCause
from holdfast_sidecar.ranks.deadlock import judge_late, rests_on_nccl, stand
from holdfast_sidecar.ranks.observation import RankHistory, RankLook, Ranks
from holdfast_sidecar.ranks.stall import (
    CLOSER_FROM,
    COMPUTING,
    MEASURED,
    STILL_ELSEWHERE_S,
    STILL_IN_COMPUTE_S,
    WAITING,
    expect,
    has_passed,
    proof_for,
)
from holdfast_sidecar.records.collectives import RankTrace
from holdfast_sidecar.records.findings import Finding, Kind, Moment

LEAST_SURE = 0.3
"""Of several culprits none is surer than this, and the victims are told as well."""

TOLD_AT_MOST = 0.6
"""Sureness of silence without positive evidence, as `stall` has it."""


ASKED_EARLY_S = 5.0
"""In a step of which nothing is known yet: a job that goes on from just before the collective that
hung would hang there again for as long as a first step may take."""

BY_NCCL = (
    "known from NCCL's numbers alone: the process group's own timeout ends it, or Holdfast after"
    " stall.nccl_act_after_s"
)


def is_doubtful(ranks: Ranks, settings: StallSettings, moment: Moment) -> bool:
    """Whether the ranks should be asked: one of this node will soon be silent for too long."""
    return ranks.world_size > 1 and any(
        moment.age_s(history.look.moved_s) > _asked_from_s(history, settings)
        for history in _going(ranks)
        if not history.look.busy
    )


def _asked_from_s(history: RankHistory, settings: StallSettings) -> float:
    expected = expect(history, settings)
    soon_s = CLOSER_FROM * expected.limit_s
    is_in_step = history.look.phase in MEASURED
    return min(soon_s, ASKED_EARLY_S) if is_in_step and not expected.is_measured else soon_s


def overdue(ranks: Ranks, settings: StallSettings, moment: Moment) -> list[int]:
    """Ranks of this node that are silent for longer than their phase's past allows."""
    return [
        history.look.rank
        for history in _going(ranks)
        if not history.look.busy
        and moment.age_s(history.look.moved_s) > expect(history, settings).limit_s
    ]


def judge_collectives(ranks: Ranks) -> Arrival | None:
    """Who keeps the others waiting, by what all ranks told; None while nobody waits too long for
    what may yet come."""
    ended = {rank for rank, history in ranks.local.items() if history.has_ended_well}
    ended |= {rank for rank, peer in ranks.peers.items() if peer.has_ended}
    return judge_late(ranks.traces, ended, ranks.world_size)


def concerned(ranks: Ranks, known: Iterable[RankLook]) -> list[RankLook]:
    """Ranks of this node that others wait for, or that seem to wait for each other, beside those
    that are under suspicion already."""
    arrival = ranks.arrival
    if arrival is None or arrival.cause not in (StuckCause.ABSENT, StuckCause.CROSSED):
        return []
    waiting = arrival.waiting if arrival.cause is StuckCause.CROSSED else ()
    under_suspicion = {look.rank for look in known}
    return [
        ranks.local[rank].look
        for rank in sorted({*arrival.culprits, *waiting})
        if rank in ranks.local and rank not in under_suspicion
    ]


def note_rest(ranks: Ranks) -> Ranks:
    """The same, with those of this node that provably only wait noted in what they told."""
    resting = {
        rank: dataclasses.replace(trace, rests=True)
        for rank, trace in ranks.traces.items()
        if rank in ranks.local and _rests(ranks.local[rank], trace, ranks)
    }
    if not resting:
        return ranks
    told = dataclasses.replace(ranks, traces={**ranks.traces, **resting})
    return dataclasses.replace(told, arrival=judge_collectives(told))


def _rests(history: RankHistory, trace: RankTrace, ranks: Ranks) -> bool:
    """A wait with an end is none for a collective: gloo waits so for a message, others for a thing
    of their own."""
    is_usual = history.look.phase in COMPUTING | WAITING
    patience_s = STILL_IN_COMPUTE_S if is_usual else STILL_ELSEWHERE_S
    return (
        trace.waits
        and trace.stands
        and trace.told_standing
        and history.still_s >= patience_s
        and bool(proof_for(history, ranks, math.inf))
    )


def settle(
    stalls: Iterable[Finding], ranks: Ranks, settings: StallSettings, moment: Moment
) -> list[Finding]:
    """The findings of `stall`, put right by what the collectives tell."""
    arrival, found = ranks.arrival, list(stalls)
    if arrival is None or not arrival.culprits:
        return found
    if _any_is_busy(arrival.culprits, ranks):
        excused = {*arrival.culprits, *arrival.waiting}
        return [one for one in found if one.kind is Kind.HANG or not set(one.ranks) <= excused]
    lasted = {
        rank
        for rank, history in ranks.local.items()
        if has_passed(settings.act_after_s, history, moment.age_s(history.look.moved_s))
    }
    settled = [_put_right(finding, arrival, ranks, lasted) for finding in found]
    told = {rank for finding in found for rank in finding.ranks}
    missing = [
        _name(ranks.local[rank], arrival, ranks, settings, moment)
        for rank in arrival.culprits
        if rank in ranks.local and rank not in told and not _has_crashed(ranks.local[rank])
    ]
    kept = [one for one in settled if one is not None] + missing
    return [_strengthen(finding, arrival, ranks, settings, moment) for finding in kept]


def _going(ranks: Ranks) -> list[RankHistory]:
    return [
        history
        for history in ranks.local.values()
        if not history.look.is_gone and not history.look.has_finished
    ]


def _any_is_busy(numbers: Iterable[int], ranks: Ranks) -> bool:
    """Whether the script of one of them says so."""
    return any(
        (number in ranks.local and ranks.local[number].look.busy)
        or (number in ranks.peers and ranks.peers[number].is_busy)
        for number in numbers
    )


def _has_crashed(history: RankHistory) -> bool:
    """That is a finding of its own."""
    return history.look.is_gone and not history.has_ended_well


def _put_right(
    finding: Finding, arrival: Arrival, ranks: Ranks, lasted: Collection[int]
) -> Finding | None:
    """None for the mere silence of a victim.

    lasted: ranks whose silence passed the limit that the user set. Their phases may say that they
    wait for others; where all seem to wait for each other, that keeps nobody from acting.
    """
    is_victim = set(finding.ranks) <= set(arrival.waiting)
    # A culprit that ended is silent for nobody: there the victims' silence is all there is.
    is_told = arrival.cause is not StuckCause.FINISHED or arrival.is_hopeless
    if finding.kind is Kind.STALL and is_victim and is_told and arrival.confidence >= LEAST_SURE:
        return None
    if set(finding.ranks) & set(arrival.culprits):
        # What can never complete says more than for how long that has been so.
        both = (finding.evidence, arrival.evidence)
        first, second = reversed(both) if arrival.is_hopeless else both
        evidence = [*first, *second]
        sureness = max(finding.confidence, min(arrival.confidence, TOLD_AT_MOST))
        is_over = finding.kind is Kind.STALL and set(finding.ranks) <= set(lasted)
        acts = finding.acts or (is_over and _all_cross(arrival, ranks))
        return dataclasses.replace(finding, evidence=evidence, confidence=sureness, acts=acts)
    return finding


def _name(
    history: RankHistory,
    arrival: Arrival,
    ranks: Ranks,
    settings: StallSettings,
    moment: Moment,
) -> Finding:
    """A culprit whose own silence is nothing unusual: it evaluates, say, or has ended."""
    look = history.look
    phase = look.phase.name.lower()
    age_s = moment.age_s(look.moved_s)
    return Finding(
        kind=Kind.STALL,
        node=moment.node,
        since_unix_s=moment.unix_s(look.moved_s),
        confidence=min(arrival.confidence, TOLD_AT_MOST),
        ranks=[look.rank],
        evidence=[f"rank {look.rank} in {phase} for {age_s:.1f} s", *arrival.evidence],
    )


def _strengthen(
    finding: Finding, arrival: Arrival, ranks: Ranks, settings: StallSettings, moment: Moment
) -> Finding:
    """A hang, where the collectives are positive evidence of one."""
    if finding.kind is not Kind.STALL or not set(finding.ranks) <= set(arrival.culprits):
        return finding
    history, proof = ranks.local[finding.ranks[0]], ""
    if arrival.is_hopeless and stand(arrival, ranks.traces) and not _works(arrival, ranks):
        proof = "that can never complete"
    elif arrival.cause is StuckCause.ABSENT and len(arrival.culprits) == 1:
        proof = _stalled_where_others_wait(history, ranks, arrival, settings)
    if not proof:
        return finding
    evidence, acts = [*finding.evidence, proof], True
    if rests_on_nccl(arrival, ranks.traces):
        acts = 0 < settings.nccl_act_after_s < moment.age_s(history.look.moved_s)
        evidence.append(BY_NCCL)
    return dataclasses.replace(
        finding, kind=Kind.HANG, confidence=arrival.confidence, acts=acts, evidence=evidence
    )


def _works(arrival: Arrival, ranks: Ranks) -> bool:
    """Whether somebody concerned is at work outside a collective, whatever it has started there and
    not waited for yet. CPU time inside one is neither work nor proof."""
    involved = {*arrival.culprits, *arrival.waiting}
    return any(
        history.look.phase not in WAITING
        and not history.look.has_died
        and not history.look.has_finished
        and history.still_s < STILL_IN_COMPUTE_S
        for rank, history in ranks.local.items()
        if rank in involved
    )


def _stalled_where_others_wait(
    history: RankHistory, ranks: Ranks, arrival: Arrival, settings: StallSettings
) -> str:
    """Proof for a rank that stands still in its backward pass, where for all `stall` knows it might
    wait for others: the collectives say that it doesn't. In a call that communicates it might wait
    for a message."""
    if history.look.phase is not Phase.BACKWARD or history.still_s < STILL_IN_COMPUTE_S:
        return ""
    trace = ranks.traces[history.look.rank]
    if not (trace.answered and trace.told_standing and _all_wait(arrival, ranks)):
        return ""
    return proof_for(history, ranks, settings.pause_s)


def _all_cross(arrival: Arrival, ranks: Ranks) -> bool:
    """Whether ranks seem to wait for each other, everybody else for them, and all for too long."""
    if arrival.cause is not StuckCause.CROSSED or not _all_wait(arrival, ranks):
        return False
    involved = {*arrival.culprits, *arrival.waiting}
    return all(rank in ranks.traces and ranks.traces[rank].is_overdue for rank in involved)


def _all_wait(arrival: Arrival, ranks: Ranks) -> bool:
    """Whether, beside the culprits, nobody is at work from whom they may yet get something."""
    ended = {number for number, peer in ranks.peers.items() if peer.has_ended}
    ended |= {number for number, one in ranks.local.items() if one.has_ended_well}
    return len({*arrival.culprits, *arrival.waiting, *ended}) >= ranks.world_size
