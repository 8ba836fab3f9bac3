"""The pane of the account: where the wall-clock time of the run went, a bar each. Pure."""

from __future__ import annotations

from holdfast_sidecar.export.live.view import LiveView
from holdfast_sidecar.performance.goodput.summary import IN_VIEWS, name_category
from holdfast_sidecar.records.formatting import span
from holdfast_sidecar.top.drawing.canvas import Body, Canvas, listed
from holdfast_sidecar.top.drawing.figures import share
from holdfast_sidecar.top.drawing.line import Line, Look, Span, joined, said
from holdfast_sidecar.top.drawing.visible import cut, padded

CATEGORY, TIME, REST = max(map(len, IN_VIEWS.values())), 12, 10
"""Columns: of the longest name, of a time, and of what lies between and behind them."""

BAR_MOST = 60
"""Columns of the longest bar: a longer one is not read any better."""

GOOD_CATEGORY = "productive"


def account(canvas: Canvas) -> Body:
    """The longest first; then what was lost of it."""
    view = canvas.view
    spent = [(name, seconds) for name, seconds in view.account.items() if seconds > 0]
    spent.sort(key=lambda one: (-one[1], one[0]))
    total_s = sum(seconds for _, seconds in spent)
    lines = [_row(name, seconds, total_s, canvas) for name, seconds in spent]
    if lines and view.lost_s:
        words = f"{span(view.lost_s)} of training had to be done again, and are not goodput"
        lines += [(), (Span(words),)]
    empty = "the account of this run is not known (yet): its leader keeps it"
    return listed(_title(view, total_s), lines, empty)


def _title(view: LiveView, total_s: float) -> Line:
    parts: list[Line] = [(Span(f"{span(total_s)} in all", Look.STRONG),)] if total_s else []
    if view.goodput is not None:
        parts.append((Span(f"goodput {share(view.goodput, 1)}"),))
    if view.ettr is not None:
        parts.append((Span(f"ETTR {share(view.ettr, 1)}"),))
    return joined(parts) or (Span("account", Look.STRONG),)


def _row(name: str, seconds: float, total_s: float, canvas: Canvas) -> Line:
    signs = canvas.signs
    part = seconds / total_s
    wide = min(CATEGORY, canvas.width - TIME - REST)
    room = min(canvas.width - wide - TIME - REST, BAR_MOST)
    label = cut(said(name_category(name), signs).text, wide, signs.more)
    look = Look.GOOD if name == GOOD_CATEGORY else Look.DOUBTFUL
    return (
        Span(f"{padded(label, wide)} {span(seconds):>{TIME}} {share(part, 1):>6}  "),
        Span(signs.bar * round(part * max(room, 0)), look),
    )
