"""Troubles of ranks that are slow in some steps, again and again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from holdfast_sidecar.records.findings import Finding
from holdfast_sidecar.records.formatting import span
from holdfast_sidecar.records.steps import Cause
from holdfast_sidecar.stragglers.advice import advise
from holdfast_sidecar.stragglers.case import Case
from holdfast_sidecar.stragglers.causes import Named, name_cause
from holdfast_sidecar.stragglers.frame import Excess
from holdfast_sidecar.stragglers.place import Place
from holdfast_sidecar.stragglers.recurring import Recurring
from holdfast_sidecar.stragglers.spells import Kind
from holdfast_sidecar.stragglers.trouble import MOST_CERTAIN, Trouble, lasts
from holdfast_sidecar.stragglers.witness import hear

SURE = 0.9
"""Of bursts, in a role of four ranks and more."""

SEEN = 0.95
"""Of what a rank was seen to do: nothing is inferred from how long others take."""

_PAUSES = {Kind.EVALUATING: Cause.EVALUATION, Kind.SAVING: Cause.SAVING}


def recurring_ranks(
    found: Sequence[Recurring],
    places: Mapping[int, Place],
    findings: Sequence[Finding],
    step: int,
) -> list[Trouble]:
    """One each."""
    return [_trouble(one, places[one.rank], findings, step) for one in found]


def _trouble(one: Recurring, place: Place, findings: Sequence[Finding], step: int) -> Trouble:
    sure = SURE if one.kind is Kind.WORK else SEEN
    if one.kind is Kind.WORK:
        sure = min(sure, MOST_CERTAIN.get(one.peers, sure))
    named = _name(one, place, findings, sure)
    return Trouble(
        ranks=(one.rank,),
        node=place.node,
        role=one.role,
        named=replace(named, evidence=(_how_often(one), *named.evidence)),
        slowdown=one.slowdown,
        confidence=sure,
        since_step=one.since_step,
        is_persistent=lasts(one.since_step, step, one.step_us / 1e6),
        accounts=(f"rank {one.rank}",),
        costs_us=one.costs_us,
        known_gain=one.gain,
        owed_us=one.owed_us,
    )


def _name(one: Recurring, place: Place, findings: Sequence[Finding], sure: float) -> Named:
    if one.kind is not Kind.WORK or one.own is None:
        cause = _PAUSES.get(one.kind, Cause.UNKNOWN)
        text = f"its peers are not {one.kind.value} then, and wait for it"
        return Named(cause, sure, (text,), advise(cause), one.kind.value)
    excess = Excess(
        rank=one.rank,
        role=one.role,
        slowdown=one.slowdown,
        confidence=sure,
        since_step=one.since_step,
        steps=one.seen_steps,
        own_us=one.own_us,
        peers_us=one.peers_us,
    )
    # What is found about a node as a whole lasts, and would not come and go.
    witness = hear(findings, place, is_shared_by_mates=False)
    named = name_cause(Case(excess, one.own, one.peers_signals, witness))
    first, *more = named.evidence
    return replace(named, evidence=(f"then {first}", *more))


def _how_often(one: Recurring) -> str:
    """`every 10th step or so takes 500 ms longer than usual, 14 times in the last 140 steps`."""
    times = f"{one.times} times in the last {one.seen_steps} steps"
    longer_us = one.own_us - one.peers_us
    if one.is_short:
        which = f"every {_ordinal(round(one.apart))} step or so takes"
        longer = span(longer_us * one.lasts / 1e6)
    else:
        which = f"about {one.lasts:.0f} steps in {one.apart:.0f} take"
        longer = f"{span(longer_us / 1e6)} each"
    return f"{which} {longer} longer than usual, {times}, and its peers' don't"


def _ordinal(number: int) -> str:
    ending = (
        "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    )
    return f"{number}{ending}"
