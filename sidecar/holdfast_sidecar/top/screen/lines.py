"""A widget that shows lines, and sends only that again which has changed: over a slow line it
counts."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import starmap, zip_longest

from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from holdfast_sidecar.top.drawing.line import Line, changed
from holdfast_sidecar.top.screen.looks import strip


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
