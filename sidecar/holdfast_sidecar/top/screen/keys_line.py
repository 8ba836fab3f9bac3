"""The line at the bottom: the panes and their keys."""

from __future__ import annotations

from textual import events

from holdfast_sidecar.export.live.view import LiveView
from holdfast_sidecar.top.choice import Choice
from holdfast_sidecar.top.drawing.panes import keys_line
from holdfast_sidecar.top.drawing.signs import Signs
from holdfast_sidecar.top.screen.lines import Lines


class KeysLine(Lines):
    """Which panes there are, and how much is in them."""

    def __init__(self, signs: Signs) -> None:
        super().__init__()
        self._signs = signs
        self._view: LiveView | None = None
        self._choice = Choice()

    def draw(self, view: LiveView | None, choice: Choice) -> None:
        """As it is now."""
        self._view, self._choice = view, choice
        self.show([keys_line(view, choice, self.size.width, self._signs)])

    def on_resize(self, event: events.Resize) -> None:
        """The same in another width."""
        self.draw(self._view, self._choice)
