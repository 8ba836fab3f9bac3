"""How the pending time of an account is put down to categories: at the end of steps, and at the end
of an attempt. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from holdfast_sidecar.goodput.step_times import StepTimes
from holdfast_sidecar.policy.budget import HANGS
from holdfast_sidecar.policy.hardware import OF_HARDWARE, STILL_RAN
from holdfast_sidecar.records.account import MICRO, Account, Category
from holdfast_sidecar.records.plan import Incident
from holdfast_sidecar.records.steps import Cause, SlowStanding

STOOD = HANGS | OF_HARDWARE | {"crash", "node_lost", "node_left", "unreachable", "agent_restarted"}
"""Causes after whose onset no step is made any more."""

TOLD_APART = frozenset({Cause.EVALUATION.value, Cause.SAVING.value, Cause.RECOMPILATION.value})
"""What others wait for while one does it counts as that, not as a straggler."""

WEIGHT = 1_000_000
"""Shares become whole numbers out of so many."""

UNTOLD_STEPS, UNTOLD_S = 20, 5.0
"""Ranks that made so many steps, and nothing was told of them for so long, won't tell: lines come
from the fourth step on, or the thirteenth where a device is timed, and are read a second later."""

Move = tuple[str, int]


@dataclass(frozen=True)
class Split:
    """What becomes of the pending time; as in an account's Turn."""

    moves: tuple[Move, ...] = ()
    shares: tuple[Move, ...] = ()
    is_at_step: bool = False
    """Steps have ended that it is about; else the attempt has."""
    toll_us: int | None = None
    """What slowness cost, up to which it is accounted for now; None: as before."""


def at_steps_end(
    account: Account, times: StepTimes, steps_made: int, since_s: float, toll_s: float | None
) -> Split:
    """The newest steps are known. steps_made: by every rank in this attempt; since_s: since the
    account was turned; toll_s: what slowness cost the run so far, None if nobody judges that."""
    pending_us = account.pending_us + round(since_s * MICRO)
    moves: tuple[Move, ...] = ()
    if account.split_attempt != account.attempt:
        # The first steps are told nothing of; the first one of all was not pending, and another one
        # may be under way.
        warm_us = max(0, pending_us - round(max(steps_made, 1) * times.step_us))
        moves = ((Category.WARMUP.value, warm_us),) if warm_us else ()
        pending_us -= warm_us
    slow_us, toll_us = _slowed(account, times, pending_us, toll_s)
    shares = _shares(times.shares, slow_us / pending_us if pending_us else 0.0)
    return Split(moves, shares, is_at_step=True, toll_us=toll_us)


def _slowed(
    account: Account, times: StepTimes, pending_us: int, toll_s: float | None
) -> tuple[int, int | None]:
    """What of this time slowness cost, and up to which it is accounted for then: who is slow is
    known some steps later, and what was told as productive can't be taken back."""
    if toll_s is None:
        return 0, None
    toll_us = round(toll_s * MICRO)
    if toll_us < account.toll_us:
        return 0, toll_us  # counted anew, by a judge that knows nothing of what was before
    most_us = int(pending_us * max(0.0, 1.0 - sum(times.shares.values())))
    slow_us = min(toll_us - account.toll_us, most_us)
    return slow_us, account.toll_us + slow_us


def toll_of(standing: SlowStanding | None) -> float | None:
    """Seconds that the whole run waited for somebody slow."""
    if standing is None:
        return None
    return sum(lost for cause, lost in standing.lost_s.items() if cause not in TOLD_APART)


def is_untold(steps_made: int, waits_s: float) -> bool:
    """Whether nothing will be told of these steps any more."""
    return steps_made >= UNTOLD_STEPS and waits_s >= UNTOLD_S


def all_productive() -> Split:
    """Steps were made of which nothing is told."""
    return Split(shares=((Category.PRODUCTIVE.value, WEIGHT),), is_at_step=True)


def at_attempts_end(
    account: Account, times: StepTimes | None, incident: Incident | None, now_unix_s: float
) -> Split:
    """Steps are made no longer. From its end backwards: since it was declared the attempt is being
    drained, since its onset nothing moved, before that was training as it had been told last."""
    moves = () if incident is None else _moves(incident, now_unix_s)
    if times is not None:
        return Split(moves, _shares(times.shares, 0.0))
    is_split = account.split_attempt == account.attempt
    rest = Category.PRODUCTIVE if is_split else Category.WARMUP
    return Split(moves, ((rest.value, WEIGHT),))


def _moves(incident: Incident, now_unix_s: float) -> tuple[Move, ...]:
    detected = incident.detected_unix_s
    drained_us = max(0, round((now_unix_s - detected) * MICRO))
    stood_us = 0
    if incident.cause in STOOD and STILL_RAN not in incident.evidence and incident.since_unix_s:
        stood_us = max(0, round((detected - incident.since_unix_s) * MICRO))
    moves = ((Category.DRAINING, drained_us), (Category.HANG_UNDETECTED, stood_us))
    return tuple((category.value, amount) for category, amount in moves if amount)


def _shares(parts: Mapping[Category, float], slowed: float) -> tuple[Move, ...]:
    """Weights of the parts, what is left as productive: last, so that it takes the rounding."""
    known = {**parts, Category.STRAGGLER: slowed}
    weights = [(c.value, int(share * WEIGHT)) for c, share in known.items() if share > 0]
    rest = max(0, WEIGHT - sum(weight for _, weight in weights))
    return (*weights, (Category.PRODUCTIVE.value, rest))
