"""A rank that makes no progress: silence alone is a stall, silence with positive evidence a hang.

Declaring is quick and costs nothing; only what `acts` may cost a rank its life. Which of several
nodes' findings names the culprit is for the leader.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from holdfast.page import Phase
from holdfast_sidecar.detectors.expectation import Expectation, expect
from holdfast_sidecar.findings import Finding, Kind
from holdfast_sidecar.observation import Moment, PeerRank, RankHistory, Ranks
from holdfast_sidecar.settings import StallSettings

STOPPED_FOR_S = 0.2
"""Two looks this far apart must find the process stopped."""

STOPPED_BEYOND_S = 0.5
"""...and the phase must be this much over its normal time. Profilers that stop a process for a
sample let it go within milliseconds; together with the look's interval this stays within 1 s."""

STOPPED_UNMEASURED_S = 5.0
"""A process stopped before its phase has a history: someone may be about to attach a debugger."""

STILL_IN_COMPUTE_S = 5.0
"""Not once on a CPU for this long, inside forward or optimizer, beyond the limit, while all peers
wait. A page fault or a slow lookup ends sooner; longer only costs time."""

STILL_ELSEWHERE_S = 30.0
"""The same between steps or while fetching data: one read of a slow store may block that long."""

WAITING_FOR_S = 1.0
"""A peer in a collective for less than this is only passing through."""

WAITING = frozenset({Phase.BACKWARD, Phase.COMMUNICATING})
"""Where a rank waits for others: DDP's reducer communicates inside the backward pass."""

_WAITING_NAMES = frozenset(phase.name.lower() for phase in WAITING)

_COMPUTING = frozenset({Phase.FORWARD, Phase.OPTIMIZER})


@dataclass(frozen=True)
class Peers:
    """What the other ranks of the attempt do, as far as this node knows."""

    known: int
    ended: int
    waiting: int
    stuck: int
    """Neither waiting nor ended, and as silent as the rank that is judged."""

    @property
    def all_wait(self) -> bool:
        """Whether someone waits and everybody else waits, is stuck as well, or has ended."""
        return self.waiting > 0 and self.waiting + self.stuck + self.ended == self.known


def find_stalls(ranks: Ranks, settings: StallSettings, moment: Moment) -> Iterator[Finding]:
    """At most one finding per rank of this node: a hang, else a stall."""
    for history in ranks.local.values():
        if _is_silent(history, settings, moment):
            finding = _judge(history, ranks, settings, moment)
            if finding is not None:
                yield finding


def is_suspicious(ranks: Ranks, settings: StallSettings, moment: Moment) -> bool:
    """Whether a closer look soon may turn up a hang that is not declared yet."""
    return any(
        _is_silent(history, settings, moment) and _is_undecided(history, settings, moment)
        for history in ranks.local.values()
    )


def _is_silent(history: RankHistory, settings: StallSettings, moment: Moment) -> bool:
    """Whether there is anything to judge; this is what a healthy rank costs at every tick."""
    if history.look.is_gone or history.look.has_finished:
        return False
    is_stopped = history.stopped_since_s is not None
    return is_stopped or moment.age_s(history.look.moved_s) > settings.floor_s


def _is_undecided(history: RankHistory, settings: StallSettings, moment: Moment) -> bool:
    expected = expect(history, settings)
    age_s = moment.age_s(history.look.moved_s)
    if history.stopped_since_s is not None:
        return not _is_stopped(history, expected, moment)
    patience_s = expected.limit_s + STILL_IN_COMPUTE_S
    return expected.is_measured and expected.limit_s < age_s < patience_s


def _judge(
    history: RankHistory, ranks: Ranks, settings: StallSettings, moment: Moment
) -> Finding | None:
    look, expected = history.look, expect(history, settings)
    age_s = moment.age_s(look.moved_s)
    if _is_stopped(history, expected, moment):
        stopped_s = moment.age_s(history.stopped_since_s or moment.now_s)
        stopped = f"process {look.identity.pid} has been stopped (state T) for {stopped_s:.1f} s"
        return _finding(Kind.HANG, history, moment, 0.98, True, [_silence(history, age_s), stopped])
    if age_s <= expected.limit_s:
        return None
    peers = _peers(history, ranks, age_s)
    if _holds_up_peers(history, ranks, peers):
        evidence = [
            _silence(history, age_s),
            f"not once on a CPU for {history.still_s:.1f} s",
            f"{peers.waiting} of {peers.known} peers wait in a collective that it has not entered",
        ]
        return _finding(Kind.HANG, history, moment, 0.9, True, evidence)
    is_victim = look.phase in WAITING and _others_are_behind(history, ranks)
    acts = age_s > settings.act_after_s and not is_victim
    confidence = 0.2 if is_victim else 0.4 if look.phase in WAITING else 0.6
    evidence = [_silence(history, age_s), f"at most {expected.limit_s:.1f} s expected"]
    if is_victim:
        evidence.append("waits for a peer that is not in the collective")
    return _finding(Kind.STALL, history, moment, confidence, acts, evidence)


def _is_stopped(history: RankHistory, expected: Expectation, moment: Moment) -> bool:
    if history.stopped_since_s is None:
        return False
    beyond_s = (
        expected.normal_s + STOPPED_BEYOND_S if expected.is_measured else STOPPED_UNMEASURED_S
    )
    return (
        moment.age_s(history.stopped_since_s) >= STOPPED_FOR_S
        and moment.age_s(history.look.moved_s) >= beyond_s
    )


def _holds_up_peers(history: RankHistory, ranks: Ranks, peers: Peers) -> bool:
    """Positive evidence without a stopped process; needs word of every rank of the attempt."""
    phase = history.look.phase
    patience_s = STILL_IN_COMPUTE_S if phase in _COMPUTING else STILL_ELSEWHERE_S
    return (
        phase not in WAITING
        and peers.all_wait
        and peers.known + 1 >= ranks.world_size
        and history.still_s >= patience_s
    )


def _peers(history: RankHistory, ranks: Ranks, age_s: float) -> Peers:
    rank, now_s = history.look.rank, history.look.at_s
    peers = [_as_peer(h, now_s) for n, h in ranks.local.items() if n != rank]
    peers += [peer for n, peer in ranks.peers.items() if n not in ranks.local]
    going = [peer for peer in peers if not peer.has_ended]
    return Peers(
        known=len(peers),
        ended=len(peers) - len(going),
        waiting=sum(_waits(p) and p.phase_age_s >= WAITING_FOR_S for p in going),
        stuck=sum(not _waits(p) and p.phase_age_s >= age_s / 2 for p in going),
    )


def _others_are_behind(history: RankHistory, ranks: Ranks) -> bool:
    """Whether some rank that is still going has not arrived where this one waits."""
    rank, now_s = history.look.rank, history.look.at_s
    others = [_as_peer(h, now_s) for n, h in ranks.local.items() if n != rank]
    others += [peer for n, peer in ranks.peers.items() if n not in ranks.local]
    return any(not _waits(peer) and not peer.has_ended for peer in others)


def _as_peer(history: RankHistory, now_s: float) -> PeerRank:
    look = history.look
    age_s = 0.0 if look.is_gone else now_s - look.moved_s
    return PeerRank(look.rank, look.step, look.phase.name.lower(), age_s, 0.0, look.has_finished)


def _waits(peer: PeerRank) -> bool:
    return peer.phase in _WAITING_NAMES


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
        since_unix_s=moment.unix_s(max(history.look.moved_s, moment.awake_since_s)),
        confidence=confidence,
        ranks=[history.look.rank],
        evidence=evidence,
        acts=acts,
    )
