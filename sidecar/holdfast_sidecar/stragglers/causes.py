"""Why a rank is slow: the cause that explains most of its excess, what says so, and what to do.

A signal names the cause where it explains half of the excess, or more than is left open; else the
part of the step that grew does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from holdfast_sidecar.records.steps import Cause
from holdfast_sidecar.stragglers import asleep
from holdfast_sidecar.stragglers.advice import advise
from holdfast_sidecar.stragglers.case import Case
from holdfast_sidecar.stragglers.explanations import COMPUTING, Explanation, explain

ENOUGH = 0.5
LEAST = 0.3
"""Of the excess: what explains less than half may be true and is not why, unless still less is left
to explain; below a third nothing is named for it."""

NEARLY = 0.7
"""Of what the best one explains: signals are no more exact than that."""

GUESSED = 0.6
"""So sure are we of a cause for which only the place of the time speaks."""

MOST = 0.95

UNEXPLAINED = (Cause.COMPUTE, Cause.UNKNOWN)

NOTHING = Explanation(Cause.UNKNOWN, 0.0, "no signal explains it", is_measured=False)


@dataclass(frozen=True)
class Named:
    """A cause and what speaks for it."""

    cause: Cause
    confidence: float
    evidence: tuple[str, ...]
    advice: str
    part: str
    is_measured: bool = True
    """By a signal or a finding; else by where the time goes alone."""
    is_asleep: bool = False
    """It slept or waited, rather than computed."""
    is_host_only: bool = False
    """It computes on no GPU or the like, which could be slow without a sign."""


def name_cause(case: Case) -> Named:
    """The cause of one slow rank."""
    found = list(explain(case))
    best = _choose(found, case)
    is_asleep = best.cause in UNEXPLAINED and case.is_asleep
    return Named(
        best.cause,
        _sureness(best, case),
        tuple(_evidence(best, case)),
        advise(best.cause, case.witness.has_device, is_asleep),
        case.main_part,
        best.is_measured,
        is_asleep,
        case.witness.is_host_only,
    )


def _choose(found: Sequence[Explanation], case: Case) -> Explanation:
    if case.excess.is_by_work_alone:
        # A long step among the newest may have made more of it than work explains.
        by_work = (one for one in found if one.cause is Cause.UNEVEN_WORK)
        return next(by_work, NOTHING)
    measured = [one for one in found if one.is_measured]
    best = _most_telling(measured, case)
    left_us = case.excess_us - sum(max(0.0, one.explains_us) for one in measured)
    # Signals say less than all of it: the best counts where no more than that is left open.
    enough_us = min(ENOUGH * case.excess_us, max(LEAST * case.excess_us, left_us))
    if best.explains_us >= enough_us:
        return best
    guesses = [one for one in found if not one.is_measured]
    guess = max(guesses, key=lambda one: one.explains_us, default=NOTHING)
    return guess if guess.explains_us >= LEAST * case.excess_us else NOTHING


def _most_telling(measured: Sequence[Explanation], case: Case) -> Explanation:
    """Of those that explain nearly as much as the best the most specific, which comes first: a
    collector at work on a busy node waits for a core as well, but it is what takes the time."""
    explained = [min(one.explains_us, case.excess_us) for one in measured]
    least = NEARLY * max(explained, default=0.0)
    told = zip(measured, explained, strict=True)
    return next((one for one, us in told if us >= least), NOTHING)


def _sureness(best: Explanation, case: Case) -> float:
    if best is NOTHING:
        return 0.0
    share = min(1.0, best.explains_us / case.excess_us)
    return round((MOST if best.is_measured else GUESSED) * share, 2)


def _evidence(best: Explanation, case: Case) -> Iterator[str]:
    part = case.main_part
    mine = case.own.part(part)
    theirs = mine - case.parts_us.get(part, 0.0)
    if mine > 0:
        usual = max(0.0, theirs) / 1e3
        yield f"{part} takes {mine / 1e3:.1f} ms of a step, its peers' {usual:.1f} ms"
    yield asleep.told(case.own) if best is NOTHING and case.is_asleep else best.text
    share = min(1.0, best.explains_us / case.excess_us)
    if best.is_measured:
        yield f"that explains {share:.0%} of its excess"
    if best.cause is Cause.COMPUTE:
        yield from filter(None, (case.witness.heat, case.witness.memory_errors))
    if best.is_measured and part in COMPUTING and case.witness.heat:
        yield case.witness.heat
