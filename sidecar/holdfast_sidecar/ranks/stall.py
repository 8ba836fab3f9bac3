"""A rank that makes no progress: silence alone is a stall, silence with positive evidence a hang.

Declaring is quick and costs nothing; only what `acts` may cost a rank its life, and silence never
does, unless the user set a limit. Which of several nodes' findings names the culprit is for the
leader. A loader that is at work is a data stall.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from holdfast.contract.page import Phase, Word
from holdfast_sidecar.config.settings import StallSettings
from holdfast_sidecar.linux.syscalls import Where
from holdfast_sidecar.ranks.checks import LoaderState, judge_loader
from holdfast_sidecar.ranks.history import Inspection
from holdfast_sidecar.ranks.observation import PeerRank, RankHistory, RankLook, Ranks
from holdfast_sidecar.records.findings import Finding, Kind, Moment

# How long a phase of a rank may last, from what the same phase took so far in this attempt.

MEASURED: Mapping[Phase, str] = {
    Phase.DATA: "data",
    Phase.FORWARD: "forward",
    Phase.BACKWARD: "backward",
    Phase.COMMUNICATING: "communicating",
    Phase.OPTIMIZER: "optimizer",
    Phase.IDLE: "other",
    Phase.TRANSFERRING: "transfer",
}
"""The phases of an ordinary step. The others (starting, restoring, compiling, saving, evaluating)
come rarely and vary without bound, so they get a fixed allowance."""

STEPS_TO_TRUST = 3
"""Steps beyond the warm-up before a phase's past says something about its future."""

USUAL_SHARE = 0.99
"""Until a hundred steps are known this is the slowest of them; from then on what happens once in a
thousand steps (an evaluation that no hook sees) no longer hides a hang in all the others."""


@dataclass(frozen=True)
class Expectation:
    """Seconds: what the phase takes at most as a rule, and from when on its silence is a stall."""

    normal_s: float
    limit_s: float
    is_measured: bool


def expect(history: RankHistory, settings: StallSettings) -> Expectation:
    """What to expect of the phase this rank is in now.

    Within a step a phase may occur several times; that their sum is what is learnt only errs
    towards patience. `stall.limit_s` overrides every limit, learnt or given.
    """
    phase = history.look.phase
    is_measured = phase in MEASURED and history.pace.steps_learnt >= STEPS_TO_TRUST
    if is_measured:
        normal_s = history.pace.parts[MEASURED[phase]].quantile_s(USUAL_SHARE)
        limit_s = max(settings.floor_s, settings.factor * normal_s)
    else:
        fixed_s = settings.save_s if phase is Phase.SAVING else settings.first_step_s
        normal_s = limit_s = max(settings.floor_s, fixed_s)
    return Expectation(normal_s, settings.limit_s or limit_s, is_measured)


# What the other ranks of the attempt do while one of them is silent.

WAITING_FOR_S = 1.0
"""A peer in a collective for less than this is only passing through."""

WAITING = frozenset({Phase.BACKWARD, Phase.COMMUNICATING})
"""Where a rank waits for others: DDP's reducer communicates inside the backward pass."""

_WAITING_NAMES = frozenset(phase.name.lower() for phase in WAITING)


@dataclass(frozen=True)
class PeerProgress:
    """How many of the others do what, as far as this node knows."""

    known: int
    ended: int
    waiting: int
    stuck: int
    """Neither waiting nor ended, and as silent as the rank that is judged."""

    @property
    def all_wait(self) -> bool:
        """Whether someone waits and everybody else waits, is stuck as well, or has ended."""
        return self.waiting > 0 and self.waiting + self.stuck + self.ended == self.known


def peer_progress_of(history: RankHistory, ranks: Ranks, age_s: float) -> PeerProgress:
    """What the other ranks do while this one has been silent for `age_s` seconds."""
    peers = _others(history, ranks)
    going = [peer for peer in peers if not peer.has_ended]
    return PeerProgress(
        known=len(peers),
        ended=len(peers) - len(going),
        waiting=sum(_waits(p) and p.phase_age_s >= WAITING_FOR_S for p in going),
        stuck=sum(not _waits(p) and not p.is_busy and p.phase_age_s >= age_s / 2 for p in going),
    )


CONTINUED_WITHIN_S = 10.0
"""Who continues what was suspended does so process by process, node by node."""


def is_suspended(history: RankHistory, ranks: Ranks) -> bool:
    """Whether all other ranks of its node are stopped as well, or were just now: that is no fault
    of a rank, but somebody's wish. Where it is alone on its node, all of the job have to be."""
    others = [peer for peer in _others(history, ranks) if not peer.has_ended]
    here = [peer for peer in others if peer.rank in ranks.local]
    if not here and len(_others(history, ranks)) + 1 < ranks.world_size:
        return False  # of some it is not known
    return all(peer.stopped_ago_s < CONTINUED_WITHIN_S for peer in here or others)


def others_are_behind(history: RankHistory, ranks: Ranks) -> bool:
    """Whether some rank that is still going has not arrived where this one waits."""
    return any(not _waits(peer) and not peer.has_ended for peer in _others(history, ranks))


def waits_for_busy(history: RankHistory, ranks: Ranks) -> bool:
    """Whether it waits, and some rank that has not arrived there is busy, as its script says."""
    if history.look.phase not in WAITING:
        return False
    behind = (p for p in _others(history, ranks) if not _waits(p) and not p.has_ended)
    return any(peer.is_busy for peer in behind)


def _others(history: RankHistory, ranks: Ranks) -> list[PeerRank]:
    rank, now_s = history.look.rank, history.look.at_s
    here = [_as_peer(h, now_s) for n, h in ranks.local.items() if n != rank]
    return here + [peer for n, peer in ranks.peers.items() if n not in ranks.local]


def _as_peer(history: RankHistory, now_s: float) -> PeerRank:
    look = history.look
    age_s = 0.0 if look.has_died else now_s - look.moved_s
    phase = look.phase.name.lower()
    return PeerRank(
        look.rank,
        look.step,
        phase,
        age_s,
        history.has_ended_well,
        history.stopped_ago_s,
        bool(look.busy),
    )


def _waits(peer: PeerRank) -> bool:
    return peer.phase in _WAITING_NAMES


# Whether a rank provably stands still: what it waits for will not come, as far as can be seen.
#
# Silence, CPU time and the peers are judged in `stall`; here it is what the threads wait at.

ENDLESS = {
    Where.LOCK: "waits for a lock that no other thread lets go",
    Where.SLEEP: "sleeps",
    Where.SIGNAL: "waits for a signal",
}
"""Waits that nothing outside the process ends. Whoever waits for a connection, a file, a pipe or a
child may only be slow: an upload, a cold read, a conversion."""


HELD = frozenset({"t", "T"})
"""States of a process that a debugger holds, or that was stopped: where it stands it was made to
stand."""

FROZEN = "D"
"""State of a process in a control group that is frozen, whatever call it is in (its v1, from Linux
6.1 on), and of one that waits for a device, or for storage."""


def is_held(look: RankLook) -> bool:
    """Whether somebody keeps it from going on, so that where its threads wait says nothing."""
    return look.process is not None and look.process.state in HELD


def proof_for(history: RankHistory, ranks: Ranks, patience_s: float) -> str:
    """The same as `proof_of_standing`, of a rank as it was looked at."""
    process = history.look.process
    if process is None or is_held(history.look) or process.state == FROZEN:
        return ""
    return proof_of_stall(ranks.scrutinies.get(history.look.rank), patience_s)


def proof_of_stall(scrutiny: Inspection | None, patience_s: float) -> str:
    """Why it will not go on by itself, in words; empty: that can't be said.

    patience_s: a wait with an end (a pause between two tries) counts only when that end lies
    further off than this.
    """
    if scrutiny is None or scrutiny.before is None or scrutiny.look.main is None:
        return ""
    wait = scrutiny.look.main
    ends = not math.isinf(wait.ends_unaided_s)
    if wait.where not in ENDLESS or (ends and wait.ends_unaided_s <= patience_s):
        return ""
    if scrutiny.stands_s <= 0 or not scrutiny.has_rested(patience_s):
        return ""
    text = f"its main thread {ENDLESS[wait.where]}"
    if ends:
        text += f" for {wait.ends_unaided_s:.0f} s more"
    return f"{text}, none of its other threads and children is at work"


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
    company = peer_progress_of(history, ranks, age_s)
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


def _holds_up_peers(history: RankHistory, ranks: Ranks, company: PeerProgress) -> bool:
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


def _may_wait_itself(history: RankHistory, ranks: Ranks, company: PeerProgress) -> bool:
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
