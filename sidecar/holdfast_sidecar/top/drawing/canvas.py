"""What a pane is drawn from, and what it becomes. Plain data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from holdfast_sidecar.export.live.view import LiveView
from holdfast_sidecar.top.choice import Choice
from holdfast_sidecar.top.drawing.line import Line, Look, Span
from holdfast_sidecar.top.drawing.signs import Signs
from holdfast_sidecar.top.drawing.visible import visible, wrapped


@dataclass(frozen=True)
class Canvas:
    """A view, what somebody chose of it, and the room there is."""

    view: LiveView
    choice: Choice
    width: int
    height: int
    """Rows that fit below the title."""
    signs: Signs


@dataclass(frozen=True)
class Body:
    """A pane: a title that stays, and rows that may be more than fit."""

    title: Line
    keys: Sequence[str]
    """By which a row is known again when the next view comes."""
    draw: Callable[[int], Line]
    """Row by number. Asked only for those that are seen: a thousand are not drawn for forty."""
    empty: str = ""
    """What is said where there is no row."""

    def rows(self, first: int, count: int) -> list[Line]:
        """Those from `first` on that there are."""
        return [self.draw(number) for number in range(first, min(first + count, len(self.keys)))]


def listed(title: Line, lines: Sequence[Line], empty: str = "") -> Body:
    """A pane of lines that are drawn already; rows are known by their number."""
    keys = [str(number) for number in range(len(lines))]
    return Body(title, keys, lines.__getitem__, empty)


def read_in_full(title: str, paragraphs: Iterable[str], canvas: Canvas) -> Body:
    """One thing, all of it: each paragraph in as many rows as it takes."""
    head = (Span(visible(title, canvas.signs.is_ascii), Look.STRONG),)
    lines: list[Line] = []
    for paragraph in paragraphs:
        text = visible(paragraph, canvas.signs.is_ascii)
        lines += [(Span(piece),) for piece in wrapped(text, max(canvas.width, 1))]
    return listed(head, lines)
