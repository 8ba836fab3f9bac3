"""The pane between head and keys: a title, rows, and a mark at the chosen one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message

from holdfast_sidecar.export.live.view import LiveView
from holdfast_sidecar.top.choice import Choice, Pane
from holdfast_sidecar.top.cursor import Cursor
from holdfast_sidecar.top.drawing.canvas import Body, Canvas
from holdfast_sidecar.top.drawing.line import Line, Look, Span, fitted
from holdfast_sidecar.top.drawing.panes import body
from holdfast_sidecar.top.drawing.signs import Signs
from holdfast_sidecar.top.screen.lines import Lines

MARGIN = 2
"""Columns before each row, in which the chosen one is marked."""


class PaneBody(Lines, can_focus=True):
    """Moves among the rows by itself; what Enter means is for others."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", show=False),
        Binding("down,j", "move(1)", show=False),
        Binding("pageup,ctrl+b", "page(-1)", show=False),
        Binding("pagedown,ctrl+f,space", "page(1)", show=False),
        Binding("home", "move(-1000000)", show=False),
        Binding("end,G", "move(1000000)", show=False),
        Binding("enter", "enter", show=False),
        Binding("tab", "app.beside(1)", show=False),
        Binding("shift+tab", "app.beside(-1)", show=False),
    ]

    class Entered(Message):
        """Enter was pressed on this row."""

        def __init__(self, key: str) -> None:
            super().__init__()
            self.key = key

    def __init__(self, signs: Signs) -> None:
        super().__init__()
        self._signs = signs
        self._view: LiveView | None = None
        self._choice = Choice()
        self._keys: Sequence[str] = ()
        self._cursors: dict[tuple[Pane, str], Cursor] = {}

    def draw(self, view: LiveView | None, choice: Choice) -> None:
        """As it is now."""
        self._view, self._choice = view, choice
        if view is None:
            self.show(())
            return
        width = max(self.size.width - MARGIN, 1)
        drawn = body(Canvas(view, choice, width, self._room, self._signs))
        self._keys = drawn.keys
        self._cursor = self._cursor.settled(drawn.keys, self._room)
        self.show([self._with_margin(line, number) for number, line in self._seen(drawn, width)])

    def on_resize(self, event: events.Resize) -> None:
        """The same in another size."""
        self.draw(self._view, self._choice)

    def action_move(self, by: int) -> None:
        """So many rows down."""
        go = self._cursor.moved if self._choice.has_rows_to_enter else self._cursor.scrolled
        self._cursor = go(by, self._keys, self._room)
        self.draw(self._view, self._choice)

    def action_page(self, by: int) -> None:
        """So many screens down."""
        self.action_move(by * max(self._room - 1, 1))

    def action_enter(self) -> None:
        """Tell which row it is."""
        self.post_message(self.Entered(self._cursor.key))

    @property
    def _room(self) -> int:
        return max(self.size.height - 1, 1)

    @property
    def _cursor(self) -> Cursor:
        return self._cursors.get((self._choice.pane, self._choice.read), Cursor())

    @_cursor.setter
    def _cursor(self, cursor: Cursor) -> None:
        self._cursors[self._choice.pane, self._choice.read] = cursor

    def _seen(self, drawn: Body, width: int) -> list[tuple[int, Line]]:
        """Lines with the numbers of their rows; -1 for what is no row."""
        lines = [(-1, fitted(drawn.title, width, self._signs))]
        first = self._cursor.first
        rows = drawn.rows(first, self._room)
        lines += [(first + at, fitted(row, width, self._signs)) for at, row in enumerate(rows)]
        if not drawn.keys:
            lines.append((-1, fitted((Span(drawn.empty, Look.DIM),), width, self._signs)))
        return lines

    def _with_margin(self, line: Line, number: int) -> Line:
        if number != self._cursor.place or not self._choice.has_rows_to_enter:
            return (Span(" " * MARGIN), *line)
        return (Span(f"{self._signs.chosen} ", Look.STRONG), *line)
