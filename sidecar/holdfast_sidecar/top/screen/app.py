"""The screen as a whole: takes the newest view, and what keys choose, to the widgets."""

from __future__ import annotations

from typing import ClassVar

from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Input

from holdfast_sidecar.top.choice import Choice, Pane
from holdfast_sidecar.top.drawing.panes import KEYS
from holdfast_sidecar.top.drawing.signs import Signs
from holdfast_sidecar.top.latest import Latest
from holdfast_sidecar.top.screen.filter_line import FilterLine
from holdfast_sidecar.top.screen.head import Head
from holdfast_sidecar.top.screen.keys_line import KeysLine
from holdfast_sidecar.top.screen.pane_body import PaneBody
from holdfast_sidecar.top.watch import Watching

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

    def __init__(self, watch: Watching, signs: Signs, choice: Choice | None = None) -> None:
        super().__init__()
        self._watching, self._signs = watch, signs
        self.choice = choice or Choice()
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

    def _choose(self, choice: Choice) -> None:
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
