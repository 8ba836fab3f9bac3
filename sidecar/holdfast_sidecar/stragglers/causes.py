"""Why a rank is slow: the cause that explains most of its excess, what says so, and what to do.

A signal names the cause where it explains at least half of the excess; else the part of the step
that grew does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from holdfast_sidecar.records.slowness import Cause
from holdfast_sidecar.stragglers.advice import advise
from holdfast_sidecar.stragglers.explanations import COMPUTING, Case, Explanation, explain

ENOUGH = 0.5
"""Of the excess: what explains less may be true and is not why."""

GUESSED = 0.6
"""So sure are we of a cause for which only the place of the time speaks."""

MOST = 0.95

NOTHING = Explanation(Cause.UNKNOWN, 0.0, "no signal explains it", is_measured=False)


@dataclass(frozen=True)
class Named:
    """A cause and what speaks for it."""

    cause: Cause
    confidence: float
    evidence: tuple[str, ...]
    advice: str
    part: str


def name_cause(case: Case) -> Named:
    """The cause of one slow rank."""
    found = list(explain(case))
    best = _choose(found, case)
    return Named(
        best.cause,
        _sureness(best, case),
        tuple(_evidence(best, case)),
        advise(best.cause),
        case.main_part,
    )


def _choose(found: Sequence[Explanation], case: Case) -> Explanation:
    measured = [one for one in found if one.is_measured]
    best = max(measured, key=lambda one: min(one.explains_us, case.excess_us), default=NOTHING)
    if best.explains_us >= ENOUGH * case.excess_us:
        return best
    guesses = [one for one in found if not one.is_measured]
    guess = max(guesses, key=lambda one: one.explains_us, default=NOTHING)
    if guess.explains_us >= ENOUGH * (case.excess_us - best.explains_us) and guess.explains_us > 0:
        return guess
    return best if best.explains_us >= ENOUGH / 2 * case.excess_us else NOTHING


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
    yield best.text
    share = min(1.0, best.explains_us / case.excess_us)
    if best.is_measured:
        yield f"that explains {share:.0%} of its excess"
    if best.cause is Cause.COMPUTE:
        yield from filter(None, (case.witness.heat, case.witness.memory_errors))
    if best.is_measured and part in COMPUTING and case.witness.heat:
        yield case.witness.heat
