"""Restart or stop: budgets per cause, backoff, and an end to a bug that repeats."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import takewhile

from holdfast_sidecar.config.settings import PolicySettings
from holdfast_sidecar.decisions.choosing import is_about_numbers
from holdfast_sidecar.decisions.hardware import OF_HARDWARE
from holdfast_sidecar.decisions.signature import are_alike, in_words
from holdfast_sidecar.records.plan import Incident, Quarantine

EXIT_FAILED = 1
EXIT_DO_NOT_REQUEUE = 65
"""The job itself is broken (sysexits' EX_DATAERR): starting it again can't help."""

EXIT_REQUEUE = 75
"""The job may be started again (sysexits' EX_TEMPFAIL), and resumes then: it was asked to go, or
hardware is to blame, which other nodes may not have."""

PLANNED = frozenset({"grow", "preempted", "restart", "stop"})
"""Causes that are nobody's fault: they use up no budget."""

OF_SILENCE = frozenset({"hang", "stall", "data_stall"})
"""Causes of ranks that lived and did nothing."""

SURROUNDINGS_FACTORS = (1, 3, 12, 30)
"""Of the first pause: 10 s, 30 s, 2 min, then 5 min each: a server that fails over, a switch that
starts anew, a file server that does. In all the default limit of attempts is half an hour."""

OF_MACHINES = frozenset({"node_lost", "node_left", "agent_restarted", "unreachable"}) | OF_HARDWARE
"""Causes that lie with nodes."""


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
    in_vain = 1 + failures_since_a_step(incident, faults)
    if in_vain >= settings.stepless_limit:
        return Stop(
            EXIT_REQUEUE if is_nobodys(incident) else EXIT_DO_NOT_REQUEUE,
            f"{in_vain} failures in a row without a step that had not been made before",
        )
    if incident.is_of_surroundings:
        return _wait_for_surroundings(incident, faults, restarts, cap, settings)
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


def failures_since_a_step(incident: Incident, earlier: Iterable[Incident]) -> int:
    """How many failures came before this one since one that no later attempt came past, that one
    with them. Of a run whose steps nobody sees an attempt that lived for long came past it; what
    was rolled back begins anew: its steps are made again on purpose. So are those of a run that
    Holdfast does not resume, as its script may do so unseen: there only attempts count that ended
    like this one, at the very step.

    A hang is no sign that it lived: ranks that wait for each other live for as long as they do."""
    return _come_no_further(
        incident,
        takewhile(lambda one: not _ended_elsewhere_from_0(one, incident), _newest_first(earlier)),
    )


def _newest_first(incidents: Iterable[Incident]) -> list[Incident]:
    return sorted(incidents, key=lambda one: one.attempt, reverse=True)


def _ended_elsewhere_from_0(one: Incident, incident: Incident) -> bool:
    """Whether steps were made after it that began at 0, and it is not what ended them now."""
    stepped_from_0 = one.recovered_unix_s > 0 and one.step_resumed <= 0 and not one.is_over_unseen
    is_same = (one.step_reached, one.cause) == (incident.step_reached, incident.cause)
    return stepped_from_0 and not is_same


def _come_no_further(incident: Incident, newest_first: Iterable[Incident]) -> int:
    count, furthest = 0, incident.step_reached
    hangs = incident.cause in OF_SILENCE
    for number, one in enumerate(newest_first, start=1):
        lived_long = not furthest and not hangs and one.recovered_unix_s > 0
        if is_about_numbers(one) or lived_long:
            break
        if one.step_reached >= furthest:
            count, furthest = number, one.step_reached
    return count


def is_nobodys(incident: Incident) -> bool:
    """Whether another try, later or on other nodes, may do better."""
    return incident.is_of_surroundings or incident.cause in OF_MACHINES


def _wait_for_surroundings(
    incident: Incident,
    faults: Iterable[Incident],
    restarts: int,
    cap: int,
    settings: PolicySettings,
) -> Restart | Stop:
    """No budget: what is away for an hour is back in the next. It is waited for ever longer, until
    an attempt comes further than all before it, wherever they began."""
    if 0 <= cap <= restarts:
        return Stop(EXIT_FAILED, f"{restarts} of {cap} restarts are used up")
    alike = [one for one in faults if one.is_of_surroundings]
    tries = _come_no_further(incident, _newest_first(alike))
    factor = SURROUNDINGS_FACTORS[min(tries, len(SURROUNDINGS_FACTORS) - 1)]
    words = incident.evidence[0] if incident.evidence else incident.cause
    return Restart(settings.surroundings_backoff_s * factor, f"not the script's fault: {words}")


def pause_s(recent: int, settings: PolicySettings) -> float:
    """No pause for the first two restarts of a cause, then doubling up to the limit."""
    if recent < 2:
        return 0.0
    return min(settings.backoff_s * 2.0 ** (recent - 2), settings.backoff_limit_s)
