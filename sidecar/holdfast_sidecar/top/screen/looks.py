"""Which colour each look is, and lines as Textual wants them.

Colours are those of Okabe and Ito, who chose eight that people tell apart whatever their eyes lack.
"""

from __future__ import annotations

from collections.abc import Mapping

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from holdfast_sidecar.top.drawing.line import HEAT, Line, Look
from holdfast_sidecar.top.drawing.ramp import COLOURS

STYLES: Mapping[Look, Style] = {
    Look.PLAIN: Style(),
    Look.DIM: Style(color="#9a9a9a"),
    Look.STRONG: Style(bold=True),
    Look.HEADING: Style(color="#b0b0b0", underline=True),
    Look.GOOD: Style(color="#56b4e9"),
    Look.DOUBTFUL: Style(color="#e69f00"),
    Look.BAD: Style(color="#f0703a", bold=True),  # vermilion, lightened for a dark screen
    **{look: Style(color=colour) for look, colour in zip(HEAT, COLOURS, strict=True)},
}


def strip(line: Line, width: int, base: Style) -> Strip:
    """A line of just that width. No text is read as markup."""
    segments = [Segment(span.text, base + STYLES[span.look]) for span in line if span.text]
    return Strip(segments).adjust_cell_length(width, base)
