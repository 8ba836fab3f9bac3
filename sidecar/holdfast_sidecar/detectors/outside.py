"""Troubles of ranks without hooks. They tell neither step nor phase, so little is certain: only a
stopped process is evidence to act on, and who is odd among the ranks is but a guess.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from holdfast_sidecar.outside_look import OutsideHistory
from holdfast_sidecar.records.clock import Moment
from holdfast_sidecar.records.findings import Finding, Kind

STOPPED_S = 5.0
"""A process stopped for this long: whoever attaches a debugger lets it go sooner, as for ranks with
hooks whose phase has no history."""

STILL_S = 30.0
"""At rest for this long while the job is to train: between steps, a slow read or a small upload
ends sooner. An evaluation on one rank may not, so nothing is done for it."""

GONE_S = 5.0
"""A rank that is gone while others go on for this long did not end with them."""


def find_outside_troubles(
    histories: Mapping[int, OutsideHistory], moment: Moment
) -> Iterator[Finding]:
    """What is wrong with the ranks of this node, as far as it shows from outside."""
    alive = [history for history in histories.values() if history.gone_since_s is None]
    for history in histories.values():
        if history.gone_since_s is not None and alive:
            yield from _crash(history, alive, moment)
    stopped = [history for history in alive if history.stopped_since_s is not None]
    is_suspended = len(stopped) == len(alive)  # all together: that is somebody's wish
    for history in stopped:
        yield from _stopped(history, is_suspended, moment)
    if not stopped and len(alive) == len(histories):
        yield from _stall(alive, moment)


def _crash(
    history: OutsideHistory, alive: list[OutsideHistory], moment: Moment
) -> Iterator[Finding]:
    gone_s = _for_s(history, history.gone_since_s)
    if gone_s < GONE_S:
        return
    is_waited_for = all(other.still_s >= GONE_S / 2 for other in alive)
    evidence = [
        f"process {history.look.who.pid} is gone, {len(alive)} others are not",
        "how it ended can't be seen from outside",
    ]
    confidence = 0.7 if is_waited_for else 0.5
    yield _finding(Kind.CRASH, [history], moment, gone_s, confidence, False, evidence)


def _stopped(history: OutsideHistory, is_suspended: bool, moment: Moment) -> Iterator[Finding]:
    if history.stopped_since_s is None:
        return
    # A scheduler that suspends a job stops us too, and may wake us first.
    stopped_s = moment.age_s(history.stopped_since_s)
    if stopped_s >= STOPPED_S:
        pid = history.look.who.pid
        evidence = [f"process {pid} has been stopped (state T) for {stopped_s:.1f} s"]
        if is_suspended:
            evidence.append("so are all others of its node")
        kind, sureness = (Kind.STALL, 0.6) if is_suspended else (Kind.HANG, 0.95)
        yield _finding(kind, [history], moment, stopped_s, sureness, not is_suspended, evidence)


def _stall(alive: list[OutsideHistory], moment: Moment) -> Iterator[Finding]:
    if (idle := _with_idle_gpu(alive)) is not None:
        idle_s = _for_s(idle, idle.gpu_idle_since_s)
        evidence = [
            f"its GPU has been idle for {idle_s:.0f} s",
            "those of its peers are busy, as they are while they wait in NCCL",
        ]
        yield _finding(Kind.STALL, [idle], moment, idle_s, 0.6, False, evidence)
        return
    still = [history for history in alive if history.still_s >= STILL_S]
    if not still:
        return
    still_s = min(history.still_s for history in still)
    rest = f"{len(still)} of {len(alive)} ranks have used hardly any CPU time for {still_s:.0f} s"
    culprits, confidence, why = _odd(alive, still)
    if culprits:
        yield _finding(Kind.STALL, culprits, moment, still_s, confidence, False, [rest, why])


def _odd(
    alive: list[OutsideHistory], still: list[OutsideHistory]
) -> tuple[list[OutsideHistory], float, str]:
    """Who most likely keeps the others: the ranks, how sure, and why. Nobody, when all is usual."""
    busy = [history for history in alive if history not in still]
    deaf = [h for h in still if _for_s(h, h.unread_since_s) >= STILL_S]
    if deaf and len(deaf) < len(alive):
        unread = sum(history.look.unread_bytes for history in deaf)
        return deaf, 0.6, f"{unread} bytes that its peers sent lie unread in its sockets"
    if not busy:
        return _alone_in_the_kernel(still)
    if len(busy) == 1 and len(still) > 1:
        return busy, 0.4, "it alone computes, while its peers wait"
    if len(still) == 1 and len(busy) > 1:
        return still, 0.4, "it alone rests, while its peers compute or spin"
    if len(alive) == 2:
        return busy, 0.35, "it computes, while its only peer waits"
    return [], 0.0, ""


def _with_idle_gpu(alive: list[OutsideHistory]) -> OutsideHistory | None:
    """The only rank whose GPU has long been idle, while all others' have long been busy."""
    idle = [h for h in alive if _for_s(h, h.gpu_idle_since_s) >= STILL_S]
    busy = [h for h in alive if _for_s(h, h.gpu_busy_since_s) >= STILL_S]
    if len(idle) == 1 and busy and len(idle) + len(busy) == len(alive):
        return idle[0]
    return None


def _for_s(history: OutsideHistory, since_s: float | None) -> float:
    """For how long that has been so. A gap in looking counts: nothing is done for it."""
    return 0.0 if since_s is None else history.look.at_s - since_s


def _alone_in_the_kernel(
    still: list[OutsideHistory],
) -> tuple[list[OutsideHistory], float, str]:
    """All rest: one that sleeps elsewhere than all others is the likeliest."""
    places = Counter(history.look.waits_in for history in still)
    usual = places.most_common(1)[0][0]
    odd = [history for history in still if history.look.waits_in != usual]
    if len(odd) == 1 and len(still) > 2 and usual and odd[0].look.waits_in:
        there = odd[0].look.waits_in
        return odd, 0.5, f"its main thread sleeps in {there}, those of its peers in {usual}"
    return still, 0.3, "which of them keeps the others can't be seen from outside"


def _finding(
    kind: Kind,
    whose: list[OutsideHistory],
    moment: Moment,
    lasts_s: float,
    confidence: float,
    acts: bool,
    evidence: list[str],
) -> Finding:
    return Finding(
        kind=kind,
        node=moment.node,
        since_unix_s=moment.now_unix_s - lasts_s,
        confidence=confidence,
        ranks=sorted(history.look.who.rank for history in whose),
        evidence=evidence,
        acts=acts,
    )
