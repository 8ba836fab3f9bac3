"""A picture without a screen: the heading, every rank or node, and what is wrong, line by line.
Pure."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast_sidecar.export.live.view import LiveView
from holdfast_sidecar.top.choice import Choice, Pane
from holdfast_sidecar.top.drawing.canvas import Canvas
from holdfast_sidecar.top.drawing.heading import heading
from holdfast_sidecar.top.drawing.line import fitted, plain
from holdfast_sidecar.top.drawing.panes import body
from holdfast_sidecar.top.drawing.signs import Signs
from holdfast_sidecar.top.latest import Latest

RANKS_MOST = 64
"""More than these are told by node."""

BELOW = (Pane.FINDINGS, Pane.SLOW, Pane.INCIDENTS)

SHOWN_BELOW = 5
"""Of each of those; `holdfast status` and `holdfast incidents` have all."""


def frame(view: LiveView, choice: Choice, width: int, signs: Signs) -> list[str]:
    """Plain lines, none wider than that. Of `choice` the words to look for and the order count."""
    told = heading(Latest(view), choice, 0.0, width, signs)
    lines = [line for line in map(plain, told) if line]
    for pane in (Pane.RANKS, *BELOW):
        lines += _section(Canvas(view, choice.at(pane), width, RANKS_MOST, signs))
    return [line.rstrip() for line in lines]


def _section(canvas: Canvas) -> Iterator[str]:
    pane, drawn = canvas.choice.pane, body(canvas)
    if not drawn.keys:
        return
    count = len(drawn.keys)
    yield ""
    if pane is not Pane.RANKS:
        yield f"{pane.value} ({count})"
    shown = count if pane is Pane.RANKS else min(count, SHOWN_BELOW)
    for line in (drawn.title, *drawn.rows(0, shown)):
        yield plain(fitted(line, canvas.width, canvas.signs))
    if shown < count:
        yield f"  and {count - shown} more"
