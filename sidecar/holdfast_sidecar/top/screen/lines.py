"""A widget that shows lines, and sends only those again that have changed."""

from __future__ import annotations

from collections.abc import Sequence

from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from holdfast_sidecar.top.drawing.line import Line
from holdfast_sidecar.top.screen.looks import strip


class Lines(Widget):
    """As many as it is high."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: list[Line] = []

    def show(self, lines: Sequence[Line]) -> None:
        """These from now on."""
        before, self._lines = self._lines, list(lines)
        changed = [
            Region(0, number, max(self.size.width, 1), 1)
            for number in range(max(len(before), len(self._lines)))
            if before[number : number + 1] != self._lines[number : number + 1]
        ]
        if changed:
            self.refresh(*changed)

    def render_line(self, y: int) -> Strip:
        """One of them, or a blank one below the last."""
        line = self._lines[y] if y < len(self._lines) else ()
        return strip(line, self.size.width, self.rich_style)
