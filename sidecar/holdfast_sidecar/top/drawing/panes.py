"""Which pane is drawn by what, and the line that names them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from holdfast_sidecar.export.live.view import LiveView
from holdfast_sidecar.top.choice import Choice, Pane
from holdfast_sidecar.top.drawing.account import account
from holdfast_sidecar.top.drawing.canvas import Body, Canvas
from holdfast_sidecar.top.drawing.findings import findings
from holdfast_sidecar.top.drawing.help import help_page
from holdfast_sidecar.top.drawing.incidents import incidents
from holdfast_sidecar.top.drawing.line import Line, Look, Span, columns, fitted, joined
from holdfast_sidecar.top.drawing.nodes import nodes
from holdfast_sidecar.top.drawing.ranks import ranks
from holdfast_sidecar.top.drawing.signs import Signs
from holdfast_sidecar.top.drawing.slow import slow

DRAWN_BY: Mapping[Pane, Callable[[Canvas], Body]] = {
    Pane.RANKS: ranks,
    Pane.INCIDENTS: incidents,
    Pane.FINDINGS: findings,
    Pane.SLOW: slow,
    Pane.ACCOUNT: account,
    Pane.NODES: nodes,
    Pane.HELP: help_page,
}

KEYS: Mapping[Pane, str] = {pane: pane.value[0] for pane in Pane} | {Pane.HELP: "?"}
"""The key of each pane is the letter that its name begins with."""

OTHERS = ("q quit", "/ filter", "p pause")
"""Keys that are told where there is room; the last goes first. The help has all."""


def body(canvas: Canvas) -> Body:
    """The pane that was chosen."""
    return DRAWN_BY[canvas.choice.pane](canvas)


def keys_line(view: LiveView | None, choice: Choice, width: int, signs: Signs) -> Line:
    """The panes, their keys as capital letters, and how much is in them; the shown one in brackets,
    so that it is seen without colours."""
    named = [joined([_named(pane, view, choice.pane) for pane in Pane], "")]
    others: list[Line] = [(Span(words, Look.DIM),) for words in OTHERS]
    while others and columns(joined([*named, *others], " ")) > width:
        others.pop()
    return fitted(joined([*named, *others], " "), width, signs)


def _named(pane: Pane, view: LiveView | None, shown: Pane) -> Line:
    count = _count(pane, view)
    name = "? Help" if pane is Pane.HELP else pane.value.capitalize()
    rest = name[1:] + (f" {count}" if count else "")
    before, after = ("[", "]") if pane is shown else (" ", " ")
    look = Look.STRONG if pane is shown else Look.PLAIN
    return Span(before, look), Span(name[0], Look.STRONG), Span(f"{rest}{after}", look)


def _count(pane: Pane, view: LiveView | None) -> int:
    if view is None:
        return 0
    counts = {
        Pane.INCIDENTS: len(view.incidents),
        Pane.FINDINGS: len(view.findings),
        Pane.SLOW: len(view.slow),
    }
    return counts.get(pane, 0)
