"""The three lines on top."""

from __future__ import annotations

import time

from textual import events

from holdfast_sidecar.top.choice import Choice
from holdfast_sidecar.top.drawing.heading import heading
from holdfast_sidecar.top.drawing.signs import Signs
from holdfast_sidecar.top.latest import Latest
from holdfast_sidecar.top.screen.lines import Lines


class Head(Lines):
    """How the job stands, what is wrong, and how fresh that is."""

    def __init__(self, signs: Signs) -> None:
        super().__init__()
        self._signs = signs
        self._latest, self._choice = Latest(), Choice()

    def draw(self, latest: Latest, choice: Choice) -> None:
        """As it is now."""
        self._latest, self._choice = latest, choice
        self.show(heading(latest, choice, time.monotonic(), self.size.width, self._signs))

    def on_resize(self, event: events.Resize) -> None:
        """The same in another width."""
        self.draw(self._latest, self._choice)
