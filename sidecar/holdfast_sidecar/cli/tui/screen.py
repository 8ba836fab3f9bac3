"""The screen as a whole: takes the newest view, and what keys choose, to the widgets."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from itertools import starmap, zip_longest
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Input

from holdfast_sidecar.cli.tui.heading import heading
from holdfast_sidecar.cli.tui.heatmap import COLOURS
from holdfast_sidecar.cli.tui.panes import KEYS, body, keys_line
from holdfast_sidecar.cli.tui.sources import SourceState
from holdfast_sidecar.cli.tui.state import Cursor, Latest, Pane, ViewState
from holdfast_sidecar.cli.tui.text import (
    HEAT,
    Body,
    Canvas,
    Line,
    Signs,
    Span,
    TextStyle,
    changed,
    fitted,
)
from holdfast_sidecar.export.live.view import LiveView

# The line in which somebody writes what to look for; it stands in place of the keys meanwhile.


class FilterLine(Input):
    """Tells every change at once, by `Input.Changed`; Enter keeps the words, Escape drops them."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "drop", show=False),
        Binding("tab,down", "submit", show=False),
    ]

    class Dropped(Message):
        """Nothing is looked for any more."""

    def __init__(self) -> None:
        super().__init__(placeholder="only rows with these words; a number is a rank, 8-15 several")

    def action_drop(self) -> None:
        """Forget the words."""
        self.value = ""
        self.post_message(self.Dropped())


# Which colour each look is, and lines as Textual wants them.
#
# Colours are those of Okabe and Ito, who chose eight that people tell apart whatever their eyes
# lack.

STYLES: Mapping[TextStyle, Style] = {
    TextStyle.PLAIN: Style(),
    TextStyle.DIM: Style(color="#9a9a9a"),
    TextStyle.STRONG: Style(bold=True),
    TextStyle.HEADING: Style(color="#b0b0b0", underline=True),
    TextStyle.GOOD: Style(color="#56b4e9"),
    TextStyle.DOUBTFUL: Style(color="#e69f00"),
    TextStyle.BAD: Style(color="#f0703a", bold=True),  # vermilion, lightened for a dark screen
    **{look: Style(color=colour) for look, colour in zip(HEAT, COLOURS, strict=True)},
}


def strip(line: Line, width: int, base: Style) -> Strip:
    """A line of just that width. No text is read as markup."""
    segments = [Segment(span.text, base + STYLES[span.look]) for span in line if span.text]
    return Strip(segments).adjust_cell_length(width, base)


# A widget that shows lines, and sends only that again which has changed: over a slow line it
# counts.


class Lines(Widget):
    """As many as it is high."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: list[Line] = []

    def show(self, lines: Sequence[Line]) -> None:
        """These from now on."""
        before, self._lines = self._lines, list(lines)
        pairs = zip_longest(before, self._lines, fillvalue=())
        differences = enumerate(starmap(changed, pairs))
        regions = [Region(first, row, count, 1) for row, (first, count) in differences if count]
        if regions:
            self.refresh(*regions)

    def render_line(self, y: int) -> Strip:
        """One of them, or a blank one below the last."""
        line = self._lines[y] if y < len(self._lines) else ()
        return strip(line, self.size.width, self.rich_style)


# The three lines on top.


class Head(Lines):
    """How the job stands, what is wrong, and how fresh that is."""

    def __init__(self, signs: Signs) -> None:
        super().__init__()
        self._signs = signs
        self._latest, self._choice = Latest(), ViewState()

    def draw(self, latest: Latest, choice: ViewState) -> None:
        """As it is now."""
        self._latest, self._choice = latest, choice
        self.show(heading(latest, choice, time.monotonic(), self.size.width, self._signs))

    def on_resize(self, event: events.Resize) -> None:
        """The same in another width."""
        self.draw(self._latest, self._choice)


# The line at the bottom: the panes and their keys.


class KeysLine(Lines):
    """Which panes there are, and how much is in them."""

    def __init__(self, signs: Signs) -> None:
        super().__init__()
        self._signs = signs
        self._view: LiveView | None = None
        self._choice = ViewState()

    def draw(self, view: LiveView | None, choice: ViewState) -> None:
        """As it is now."""
        self._view, self._choice = view, choice
        self.show([keys_line(view, choice, self.size.width, self._signs)])

    def on_resize(self, event: events.Resize) -> None:
        """The same in another width."""
        self.draw(self._view, self._choice)


# The pane between head and keys: a title, rows, and a mark at the chosen one.

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
        self._choice = ViewState()
        self._keys: Sequence[str] = ()
        self._cursors: dict[tuple[Pane, str], Cursor] = {}

    def draw(self, view: LiveView | None, choice: ViewState) -> None:
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
            lines.append((-1, fitted((Span(drawn.empty, TextStyle.DIM),), width, self._signs)))
        return lines

    def _with_margin(self, line: Line, number: int) -> Line:
        if number != self._cursor.place or not self._choice.has_rows_to_enter:
            return (Span(" " * MARGIN), *line)
        return (Span(f"{self._signs.chosen} ", TextStyle.STRONG), *line)


LOOK_EVERY_S = 0.25
"""How soon something new is shown. That a watch is asked for it costs nothing."""

NAMES = {"?": "question_mark", "/": "slash"}
"""What Textual calls keys that are no letters."""


class TopApp(App[None]):
    """Shows what a watch knows, until somebody has seen enough."""

    TITLE = "holdfast top"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    Head { height: 3; }
    PaneBody { height: 1fr; }
    KeysLine { height: 1; }
    FilterLine { display: none; height: 1; border: none; padding: 0; }
    FilterLine:focus { border: none; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(NAMES.get(key, key), f"pane('{pane.value}')") for pane, key in KEYS.items()),
        Binding("slash", "write"),
        Binding("escape", "leave"),
        Binding("o", "order"),
        Binding("g", "group"),
        Binding("p", "pause"),
        Binding("q", "quit"),
        Binding("ctrl+c", "quit", priority=True),
    ]

    def __init__(self, watch: SourceState, signs: Signs, choice: ViewState | None = None) -> None:
        super().__init__()
        self._watching, self._signs = watch, signs
        self.choice = choice or ViewState()
        self._latest = Latest()

    def compose(self) -> ComposeResult:
        """Head, pane, keys."""
        yield Head(self._signs)
        yield PaneBody(self._signs)
        yield KeysLine(self._signs)
        yield FilterLine()

    def on_mount(self) -> None:
        """Show what is known at once."""
        self.query_one(PaneBody).focus()
        self._look()
        self.set_interval(LOOK_EVERY_S, self._look)

    def _look(self) -> None:
        latest = self._watching.latest
        if self.choice.is_paused:
            return
        if latest is not self._latest:
            self._latest = latest
            self._draw()
        elif latest.away_since_s is not None:
            self.query_one(Head).draw(latest, self.choice)

    def _draw(self) -> None:
        self.query_one(Head).draw(self._latest, self.choice)
        self.query_one(PaneBody).draw(self._latest.view, self.choice)
        self.query_one(KeysLine).draw(self._latest.view, self.choice)

    def _choose(self, choice: ViewState) -> None:
        if choice != self.choice:
            self.choice = choice
            self._draw()

    def action_pane(self, name: str) -> None:
        """Another pane."""
        self._choose(self.choice.at(Pane(name)))

    def action_beside(self, by: int) -> None:
        """The next pane."""
        self._choose(self.choice.beside(by))

    def action_order(self) -> None:
        """Another order."""
        self._choose(self.choice.with_next_order())

    def action_group(self) -> None:
        """Rows that stand for something else."""
        self._choose(self.choice.with_next_grouping())

    def action_pause(self) -> None:
        """Stand still, or go on."""
        self._choose(self.choice.paused_or_not())

    def action_leave(self) -> None:
        """One step back."""
        self._choose(self.choice.left())

    def action_write(self) -> None:
        """Ask what to look for."""
        words = self.query_one(FilterLine)
        words.value = self.choice.filter
        self._write(True)
        words.focus()

    def on_pane_body_entered(self, event: PaneBody.Entered) -> None:
        """Open a row."""
        self._choose(self.choice.entered(event.key))

    def on_input_changed(self, event: Input.Changed) -> None:
        """Look for it while it is written."""
        self._choose(self.choice.with_filter(event.value))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Keep the words."""
        self._back_to_rows()

    def on_filter_line_dropped(self, event: FilterLine.Dropped) -> None:
        """Drop the words."""
        self._choose(self.choice.with_filter(""))
        self._back_to_rows()

    def _back_to_rows(self) -> None:
        self._write(False)
        self.query_one(PaneBody).focus()

    def _write(self, is_writing: bool) -> None:
        self.query_one(FilterLine).display = is_writing
        self.query_one(KeysLine).display = not is_writing
