"""The pane of ranks: a table, and ranks x time beside it. Pure."""

from __future__ import annotations

from holdfast_sidecar.top.drawing.attention import attention
from holdfast_sidecar.top.drawing.canvas import Body, Canvas, read_in_full
from holdfast_sidecar.top.drawing.heat_row import timeline
from holdfast_sidecar.top.drawing.line import Line, Span, joined
from holdfast_sidecar.top.drawing.rank_columns import HEAT_LEAST, chosen, columns
from holdfast_sidecar.top.drawing.rank_details import details
from holdfast_sidecar.top.drawing.rows import RANK_KEY, rows

NOBODY = "no rank has been heard of yet"
NOT_FOUND = "no rank has these words (Esc shows all)"


def ranks(canvas: Canvas) -> Body:
    """The table, or all that is known of the one rank that is read."""
    view = canvas.view
    read = next((one for one in view.ranks if f"{RANK_KEY}{one.rank}" == canvas.choice.read), None)
    if read is not None:
        return read_in_full(f"rank {read.rank} on {read.node}", details(read, view), canvas)
    found = attention(view)
    shown = rows(view, canvas.choice, found, canvas.height)
    least = HEAT_LEAST if view.heat.columns else 0
    table = chosen(columns(canvas, shown, found), canvas.width - least)
    room = canvas.width - sum(one.width + 1 for one in table)
    times = timeline(view.heat, room, view.step_s)

    def draw(number: int) -> Line:
        row = shown[number]
        cells: list[Line] = [(one.cell(row, canvas.signs.more),) for one in table]
        numbers = [one.rank for one in row.ranks]
        return joined([*cells, times.row(numbers, row.worst.rank, canvas.signs)], " ")

    titles: list[Line] = [(one.title,) for one in table]
    title = joined([*titles, (times.title(),)], " ")
    empty = NOT_FOUND if view.ranks else NOBODY
    return Body(_in_signs(title, canvas), [one.key for one in shown], draw, empty)


def _in_signs(title: Line, canvas: Canvas) -> Line:
    """The degree sign is the one that ASCII lacks."""
    if not canvas.signs.is_ascii:
        return title
    return tuple(Span(span.text.replace("°", " "), span.look) for span in title)
