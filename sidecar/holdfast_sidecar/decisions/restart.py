"""Restart or stop: budgets per cause, backoff, and an end to a bug that repeats."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from holdfast_sidecar.decisions.hardware import OF_HARDWARE
from holdfast_sidecar.decisions.signature import are_alike, in_words
from holdfast_sidecar.records.incident import Incident
from holdfast_sidecar.records.quarantine import Quarantine
from holdfast_sidecar.settings import PolicySettings

EXIT_FAILED = 1
EXIT_DO_NOT_REQUEUE = 65
"""The job itself is broken (sysexits' EX_DATAERR): starting it again can't help."""

EXIT_REQUEUE = 75
"""The job may be started again (sysexits' EX_TEMPFAIL), and resumes then: it was asked to go, or
hardware is to blame, which other nodes may not have."""

PLANNED = frozenset({"grow", "preempted", "restart", "stop"})
"""Causes that are nobody's fault: they use up no budget."""


@dataclass(frozen=True)
class Restart:
    """Start again, but not before the pause is over."""

    pause_s: float
    why: str = ""
    """What the pause is for."""


@dataclass(frozen=True)
class Stop:
    """End the job, and say why."""

    exit_code: int
    message: str
    outside: list[Quarantine] | None = None
    """Who is kept outside from now on; None: nobody new."""


def decide(
    incident: Incident,
    earlier: Iterable[Incident],
    restarts: int,
    cap: int,
    settings: PolicySettings,
    now_unix_s: float,
) -> Restart | Stop:
    """What to do about `incident`, given those before it (of any age, in any order).

    restarts: of this run so far; a run before it under the same name had its own. cap: most of
    them, -1 for none beside the budget.
    """
    if incident.cause in PLANNED:
        return Restart(0.0)
    faults = [i for i in earlier if i.decided == "restart" and i.cause not in PLANNED]
    repeats = sum(are_alike(i.signature, incident.signature) for i in faults) + 1
    if incident.signature and repeats >= settings.same_signature_limit:
        return Stop(EXIT_DO_NOT_REQUEUE, f"the same failure {repeats} times: {in_words(incident)}")
    if 0 <= cap <= restarts:
        return Stop(EXIT_FAILED, f"{restarts} of {cap} restarts are used up")
    recent = [
        i
        for i in faults
        if i.cause == incident.cause and now_unix_s - i.detected_unix_s <= settings.budget_window_s
    ]
    if len(recent) >= settings.budget:
        return Stop(
            EXIT_REQUEUE if incident.cause in OF_HARDWARE else EXIT_FAILED,
            f"{len(recent)} restarts for {incident.cause} within {settings.budget_window_s:g} s",
        )
    why = (
        f"restarted {len(recent)} times for {incident.cause} within {settings.budget_window_s:g} s"
    )
    return Restart(pause_s(len(recent), settings), why)


def pause_s(recent: int, settings: PolicySettings) -> float:
    """No pause for the first two restarts of a cause, then doubling up to the limit."""
    if recent < 2:
        return 0.0
    return min(settings.backoff_s * 2.0 ** (recent - 2), settings.backoff_limit_s)
