"""A rank that makes no progress: silence alone is a stall, silence with positive evidence a hang.

Declaring is quick and costs nothing; only what `acts` may cost a rank its life, and silence never
does, unless the user set a limit. Which of several nodes' findings names the culprit is for the
leader. A loader that is at work is a data stall.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from holdfast.page import Phase, Word
from holdfast_sidecar.config.settings import StallSettings
from holdfast_sidecar.detectors.company import (
    WAITING,
    Company,
    company_of,
    is_suspended,
    others_are_behind,
    waits_for_busy,
)
from holdfast_sidecar.detectors.expectation import Expectation, expect
from holdfast_sidecar.detectors.immobility import is_held, proof_for
from holdfast_sidecar.detectors.loader import LoaderState, judge_loader
from holdfast_sidecar.observation import RankHistory, RankLook, Ranks
from holdfast_sidecar.records.clock import Moment
from holdfast_sidecar.records.findings import Finding, Kind

STOPPED_FOR_S = 0.45
"""Looks this far apart must all have found the process stopped: one that is stopped for 0.4 s is
left alone. Profilers that stop a process for a sample let it go within milliseconds."""

STOPPED_BEYOND_S = 0.5
"""...and the phase must be this much over its normal time; together with the look's interval this
stays within 1 s."""

STOPPED_UNMEASURED_S = 5.0
"""The same for one that is stopped before its phase has a history: someone may be about to attach a
debugger."""

STILL_IN_COMPUTE_S = 1.5
"""Not once on a CPU for this long, inside forward or optimizer, beyond the limit, in a wait that
nothing outside ends, while all peers wait. Threads hand each other work within milliseconds."""

STILL_ELSEWHERE_S = 30.0
"""The same between steps or while fetching data, where programs rest and wait for many a thing."""

UNDECIDED_S = 5.0
"""Evidence shows by this time after the limit, or not soon; looks become as rare as ever then."""

CLOSER_FROM = 0.5
"""Of the limit: from then on a rank is looked at closely, so that something is known of it by the
time the limit has passed. Steps in their usual time end at a third of it."""

COMPUTING = frozenset({Phase.FORWARD, Phase.OPTIMIZER})


def find_stalls(ranks: Ranks, settings: StallSettings, moment: Moment) -> Iterator[Finding]:
    """At most one finding per rank of this node: a hang, else a stall."""
    for history in ranks.local.values():
        if _is_silent(history, settings, moment):
            finding = _judge(history, ranks, settings, moment)
            if finding is not None:
                yield finding


def suspects(ranks: Ranks, settings: StallSettings, moment: Moment) -> list[RankLook]:
    """Ranks that are about to be, or are, silent for too long, and don't wait for others."""
    return [
        history.look
        for history in ranks.local.values()
        if not _is_out_of_question(history)
        and not history.look.busy
        and history.look.phase not in WAITING
        and moment.age_s(history.look.moved_s) > CLOSER_FROM * expect(history, settings).limit_s
    ]


def due_in_s(ranks: Ranks, settings: StallSettings, moment: Moment) -> float:
    """Seconds until the silence of some rank passes its limit; infinite when all have, or none."""
    return min(
        (
            left_s
            for history in ranks.local.values()
            if not _is_out_of_question(history)
            and not history.look.busy
            and (left_s := _left_s(history, settings, moment)) >= 0
        ),
        default=math.inf,
    )


def is_suspicious(ranks: Ranks, settings: StallSettings, moment: Moment) -> bool:
    """Whether a closer look soon may turn up a hang that is not declared yet."""
    return any(
        _is_silent(history, settings, moment) and _is_undecided(history, settings, moment)
        for history in ranks.local.values()
    )


def stood_since_s(history: RankHistory, settings: StallSettings, moment: Moment) -> float | None:
    """Last progress of a rank that has died, if it had been silent for too long before under our
    eyes; None: it died at work, or lives."""
    gone_s, moved_s = history.gone_since_s, history.look.moved_s
    if gone_s is None or history.look.has_finished:
        return None
    silent_s = gone_s - max(moved_s, moment.awake_since_s)
    return moved_s if silent_s > expect(history, settings).limit_s else None


def _is_silent(history: RankHistory, settings: StallSettings, moment: Moment) -> bool:
    """Whether there is anything to judge; this is what a healthy rank costs at every tick."""
    if _is_out_of_question(history):
        return False
    if history.stopped_since_s is not None:
        return True
    least_s = settings.limit_s or settings.floor_s
    return moment.age_s(history.look.moved_s) > least_s and not history.look.busy


def _is_out_of_question(history: RankHistory) -> bool:
    return history.look.has_died or history.look.has_finished


def _left_s(history: RankHistory, settings: StallSettings, moment: Moment) -> float:
    return expect(history, settings).limit_s - moment.age_s(history.look.moved_s)


def _is_undecided(history: RankHistory, settings: StallSettings, moment: Moment) -> bool:
    expected = expect(history, settings)
    age_s = moment.age_s(history.look.moved_s)
    if history.stopped_since_s is not None:
        return moment.age_s(history.stopped_since_s) < STOPPED_FOR_S + STOPPED_BEYOND_S
    patience_s = expected.limit_s + UNDECIDED_S
    return expected.is_measured and expected.limit_s < age_s < patience_s


def _judge(
    history: RankHistory, ranks: Ranks, settings: StallSettings, moment: Moment
) -> Finding | None:
    look, expected = history.look, expect(history, settings)
    age_s = moment.age_s(look.moved_s)
    if _is_stopped(history, ranks, expected, moment):
        stopped_s = moment.age_s(history.stopped_since_s or moment.now_s)
        stopped = f"process {look.identity.pid} has been stopped (state T) for {stopped_s:.1f} s"
        return _finding(Kind.HANG, history, moment, 0.98, True, [_silence(history, age_s), stopped])
    is_excused = bool(look.busy) or waits_for_busy(history, ranks)
    if age_s <= expected.limit_s or is_excused:
        return None
    if is_held(look):
        return _judge_silence(history, ranks, settings, moment, expected)
    if look.phase is Phase.DATA:
        finding = _judge_loader(history, ranks, settings, moment)
        if finding is not None:
            return finding
    company = company_of(history, ranks, age_s)
    proof = proof_for(history, ranks, settings.pause_s)
    if proof and _holds_up_peers(history, ranks, company):
        evidence = [
            _silence(history, age_s),
            f"not once on a CPU for {history.still_s:.1f} s: {proof}",
            f"{company.waiting} of {company.known} peers wait in a collective that it has not "
            "entered",
        ]
        return _finding(Kind.HANG, history, moment, 0.9, True, evidence)
    return _judge_silence(history, ranks, settings, moment, expected)


def _judge_loader(
    history: RankHistory, ranks: Ranks, settings: StallSettings, moment: Moment
) -> Finding | None:
    """A rank that waits for a batch longer than usual; None when its loader says nothing."""
    look = history.look
    state = "" if look.process is None else look.process.state
    loader = judge_loader(ranks.scrutinies.get(look.rank), state, settings.pause_s)
    age_s = moment.age_s(look.moved_s)
    evidence = [_silence(history, age_s), loader.evidence]
    if loader.state in (LoaderState.STOPPED, LoaderState.DEAD):
        return _finding(Kind.HANG, history, moment, 0.95, True, evidence)
    if loader.state is LoaderState.WORKING:
        acts = has_passed(settings.data_stall_timeout_s, history, age_s)
        return _finding(Kind.DATA_STALL, history, moment, 0.8, acts, evidence)
    return None


def _judge_silence(
    history: RankHistory,
    ranks: Ranks,
    settings: StallSettings,
    moment: Moment,
    expected: Expectation,
) -> Finding:
    """Nothing but silence; a rank that waits for another is its victim, and never acted on."""
    look = history.look
    age_s = moment.age_s(look.moved_s)
    is_victim = look.phase in WAITING and others_are_behind(history, ranks)
    acts = has_passed(settings.act_after_s, history, age_s) and not is_victim
    confidence = 0.2 if is_victim else 0.4 if look.phase in WAITING else 0.6
    evidence = [_silence(history, age_s), f"at most {expected.limit_s:.1f} s expected"]
    if is_victim:
        evidence.append("waits for a peer that is not in the collective")
    if is_held(look):
        evidence.append("it was stopped from outside, as by a debugger or with all others")
    return _finding(Kind.STALL, history, moment, confidence, acts, evidence)


def has_passed(limit_s: float, history: RankHistory, age_s: float) -> bool:
    """Whether a limit that the user may have set (0: none) is over. It is for steps: before the
    attempt's first one an index is built, or state is loaded, and only proof acts."""
    has_stepped = history.look.step > history.look.words[Word.RESUMED_STEP]
    return has_stepped and 0 < limit_s < age_s


def _is_stopped(history: RankHistory, ranks: Ranks, expected: Expectation, moment: Moment) -> bool:
    """Whether it alone was stopped, and for longer than it can be by accident."""
    if history.stopped_since_s is None or is_suspended(history, ranks):
        return False
    stopped_s = moment.age_s(history.stopped_since_s)
    if not expected.is_measured:
        return stopped_s >= STOPPED_UNMEASURED_S
    silent_s = moment.age_s(history.look.moved_s)
    return stopped_s >= STOPPED_FOR_S and silent_s >= expected.normal_s + STOPPED_BEYOND_S


def _holds_up_peers(history: RankHistory, ranks: Ranks, company: Company) -> bool:
    """Positive evidence without a stopped process; needs word of every rank of the attempt."""
    phase = history.look.phase
    patience_s = STILL_IN_COMPUTE_S if phase in COMPUTING else STILL_ELSEWHERE_S
    return (
        phase not in WAITING
        and company.all_wait
        and company.known + 1 >= ranks.world_size
        and history.still_s >= patience_s
        and not _may_wait_itself(history, ranks, company)
    )


def _may_wait_itself(history: RankHistory, ranks: Ranks, company: Company) -> bool:
    """Whether it may be in a collective that no hook sees, as FSDP's are in the forward pass, and
    wait for another rank that is as silent as itself."""
    trace = ranks.traces.get(history.look.rank)
    if trace is None or not trace.answered:
        return company.stuck > 0
    return trace.waits or not trace.told_standing


def _silence(history: RankHistory, age_s: float) -> str:
    look = history.look
    return f"rank {look.rank} in {look.phase.name.lower()} for {age_s:.1f} s, step {look.step}"


def _finding(
    kind: Kind,
    history: RankHistory,
    moment: Moment,
    confidence: float,
    acts: bool,
    evidence: list[str],
) -> Finding:
    return Finding(
        kind=kind,
        node=moment.node,
        since_unix_s=moment.unix_s(history.look.moved_s),
        confidence=confidence,
        ranks=[history.look.rank],
        evidence=evidence,
        acts=acts,
    )
