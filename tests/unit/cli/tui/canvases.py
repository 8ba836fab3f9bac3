"""Canvases for tests, and what is drawn on them as text."""

from __future__ import annotations

from holdfast_sidecar.cli.tui.panes import body
from holdfast_sidecar.cli.tui.state import Pane, ViewState
from holdfast_sidecar.cli.tui.text import UNICODE, Canvas, Signs, plain
from holdfast_sidecar.export.live.view import LiveView


def canvas(
    view: LiveView,
    choice: ViewState | None = None,
    width: int = 78,
    height: int = 19,
    signs: Signs = UNICODE,
) -> Canvas:
    return Canvas(view, choice or ViewState(), width, height, signs)


def drawn(
    view: LiveView, pane: Pane, read: str = "", width: int = 78, height: int = 19
) -> list[str]:
    """The title and every row."""
    made = body(canvas(view, ViewState(pane=pane, read=read), width, height))
    return [plain(line).rstrip() for line in (made.title, *made.rows(0, len(made.keys)))]
