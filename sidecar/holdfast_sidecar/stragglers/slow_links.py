"""Troubles of links: exchanges that got slower, by the node whose link it is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from holdfast_sidecar.records.steps import Cause
from holdfast_sidecar.stragglers.advice import UNKNOWN_LINK, advise
from holdfast_sidecar.stragglers.causes import Named
from holdfast_sidecar.stragglers.frame import Frame
from holdfast_sidecar.stragglers.place import Place
from holdfast_sidecar.stragglers.suspect_nodes import Suspect
from holdfast_sidecar.stragglers.trouble import Trouble, lasts

SHORTEST = 0.1
"""Of a step, what is left without what the exchange takes longer: they are means over different
steps."""


def slow_links(
    suspects: Iterable[Suspect], frame: Frame, places: Mapping[int, Place], step_s: float
) -> list[Trouble]:
    """One for each that is suspected. Where nobody can be named, it is about all members.

    Ranks of one node that compute on its processors have no link between them: what their
    exchanges take is the processors' time, and theirs alone to be short of.
    """
    return [
        _of_one(one, places, frame.step, step_s)
        for one in suspects
        if not one.is_inside or _has_device(one, frame)
    ]


def _has_device(suspect: Suspect, frame: Frame) -> bool:
    members = {rank for one in suspect.slow for rank in one.ranks}
    return any(frame.lines[rank].clock_permille for rank in members if rank in frame.lines)


def _of_one(suspect: Suspect, places: Mapping[int, Place], step: int, step_s: float) -> Trouble:
    worst = max(suspect.slow, key=lambda one: one.costs_us)
    members = sorted({rank for one in suspect.slow for rank in one.ranks})
    own = [rank for rank in members if suspect.node and places[rank].node == suspect.node]
    cause = Cause.GPU_LINK if suspect.is_inside else Cause.LINK
    text = (
        f"the exchange of {worst.group} takes {worst.exchange_us / 1e3:.1f} ms of a step, "
        f"{worst.usual_us / 1e3:.1f} ms by {worst.against}, and no rank comes later to it"
    )
    advice = advise(cause) if suspect.node else UNKNOWN_LINK
    since = min(one.since_step for one in suspect.slow)
    return Trouble(
        ranks=tuple(own or members),
        node=suspect.node,
        role="",
        named=Named(cause, suspect.confidence, (text, *suspect.evidence), advice, "communicating"),
        slowdown=_slowdown(worst.costs_us, 1e6 * step_s),
        confidence=suspect.confidence,
        since_step=since,
        is_persistent=lasts(since, step, step_s),
        accounts=(f"link {suspect.node or worst.digest}",),
        costs_us=worst.costs_us,
        group=worst.group,
        blames_ranks=False,
    )


def _slowdown(costs_us: float, step_us: float) -> float:
    """By how much the step is longer, as for a slow rank. The exchange itself may take ten times as
    long where it was short; that is told as evidence."""
    return costs_us / max(step_us - costs_us, SHORTEST * step_us, 1.0)
