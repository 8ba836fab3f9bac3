"""The pane of help: keys, and what the signs of the pictures mean. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from holdfast_sidecar.top.drawing.canvas import Body, Canvas, listed
from holdfast_sidecar.top.drawing.line import Line, Look, Span, columns, fitted, joined
from holdfast_sidecar.top.drawing.ramp import LETTERS, legend
from holdfast_sidecar.top.drawing.visible import padded

KEYS = (
    ("r i f s a n", "ranks, incidents, findings, slow, account, nodes; Tab goes on"),
    ("up down j k", "move; PgUp, PgDn, Home and End too"),
    ("Enter", "on a node: its ranks; on anything else: all that is known of it"),
    ("Esc", "back"),
    ("/", "only rows with these words; a number is a rank, 8-15 are several"),
    ("o", "order: by number, worst, longest step, longest in its phase"),
    ("g", "a row is: what fits, a rank, or a node, told by its worst rank"),
    ("p", "stand still, and go on"),
    ("q", "leave"),
)

MARKS: tuple[tuple[str, Look, str], ...] = (
    ("!", Look.BAD, "dead, or acted on"),
    ("?", Look.DOUBTFUL, "not heard now: as of then"),
    ("*", Look.DOUBTFUL, "slow, or something found"),
)

KEY = 13


def help_page(canvas: Canvas) -> Body:
    """All of it."""
    return listed((Span("keys", Look.STRONG),), list(_lines(canvas)))


def _lines(canvas: Canvas) -> Iterator[Line]:
    for key, words in KEYS:
        line = (Span(padded(key, KEY), Look.STRONG), Span(words))
        yield fitted(line, canvas.width, canvas.signs)
    yield ()
    yield (Span("own time of a rank, against the middle of its peers", Look.STRONG),)
    yield from _folded(legend(canvas.signs), canvas.width)
    yield ()
    yield (Span("where no step ended: what it did", Look.STRONG),)
    phases = [(Span(letter, Look.DIM), Span(f" {phase}")) for phase, letter in LETTERS.items()]
    yield from _folded(phases, canvas.width)
    yield ()
    yield from _folded([(Span(sign, look), Span(f" {w}")) for sign, look, w in MARKS], canvas.width)


def _folded(parts: Sequence[Line], room: int) -> Iterator[Line]:
    """Parts beside each other, as many as fit into each line."""
    line: Line = ()
    for part in parts:
        longer = joined([line, part]) if line else part
        if line and columns(longer) > room:
            yield line
            longer = part
        line = longer
    yield line
