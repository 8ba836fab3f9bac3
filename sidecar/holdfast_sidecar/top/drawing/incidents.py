"""The pane of incidents: one line each, the newest first, and the story of the one that is read.
Pure."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast_sidecar.export.live.view import IncidentView
from holdfast_sidecar.top.drawing.canvas import Body, Canvas, read_in_full
from holdfast_sidecar.top.drawing.figures import short_span
from holdfast_sidecar.top.drawing.line import Line, Look, Span, said
from holdfast_sidecar.top.drawing.sieve import passes
from holdfast_sidecar.top.drawing.visible import cut, padded

RANKS_NAMED = 4

DECIDED = 8
"""Columns of what was decided."""

TITLE = (Span(f"  {'ago':>5} {'lost':>5}  {'decided':<{DECIDED}}  incident", Look.HEADING),)


def incidents(canvas: Canvas) -> Body:
    """The list, or a story."""
    read = [one for one in canvas.view.incidents if one.identifier == canvas.choice.read]
    if read:
        return read_in_full(heading(read[0]), story(read[0]), canvas)
    shown = [one for one in canvas.view.incidents if _is_looked_for(one, canvas.choice.filter)]

    def draw(number: int) -> Line:
        return _row(shown[number], canvas)

    empty = "no incident has these words" if canvas.view.incidents else "no incident so far"
    return Body(TITLE, [one.identifier for one in shown], draw, empty)


def heading(one: IncidentView) -> str:
    """`incident 20261123-…: hang, rank 5 on b`."""
    return f"incident {one.identifier}: {_what(one)}"


def story(one: IncidentView) -> Sequence[str]:
    """What is told of it, in lines."""
    lines = [*([one.title] if one.title else []), *one.story]
    return lines or ["nothing more is told of it here; holdfast explain may know more"]


def where(one: IncidentView) -> str:
    """`rank 5 on b`, `node b`, or nothing where nobody is blamed."""
    named = ", ".join(str(rank) for rank in one.ranks[:RANKS_NAMED])
    more = ", ..." * (len(one.ranks) > RANKS_NAMED)
    who = f"rank{'s' * (len(one.ranks) > 1)} {named}{more}" if one.ranks else ""
    if not one.node:
        return who
    return f"{who} on {one.node}" if who else f"node {one.node}"


def _what(one: IncidentView) -> str:
    return ", ".join(filter(None, (one.cause, where(one))))


def _row(one: IncidentView, canvas: Canvas) -> Line:
    signs = canvas.signs
    ago_s = canvas.view.now_unix_s - (one.detected_unix_s or one.since_unix_s)
    is_open = not one.is_over and not canvas.view.is_over
    decided = cut(said(one.decided, signs).text, DECIDED, signs.more)
    words = f"{one.cause}: {one.title}" if one.title else _what(one)
    return (
        Span("! ", Look.BAD) if is_open else Span("  "),
        Span(f"{short_span(ago_s):>5} {short_span(one.lost_s):>5}  {padded(decided, DECIDED)}  "),
        said(words, signs),
    )


def _is_looked_for(one: IncidentView, words: str) -> bool:
    texts = (one.identifier, one.cause, one.node, one.decided, one.title)
    return passes(words, texts, tuple(one.ranks))
