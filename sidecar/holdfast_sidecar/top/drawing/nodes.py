"""The pane of nodes: who has a place in the job, or would take one, and who leads. Pure."""

from __future__ import annotations

from holdfast_sidecar.export.live.view import NodeView
from holdfast_sidecar.top.drawing.canvas import Body, Canvas
from holdfast_sidecar.top.drawing.figures import UNKNOWN, short_span
from holdfast_sidecar.top.drawing.line import Line, Look, Span, said
from holdfast_sidecar.top.drawing.sieve import passes
from holdfast_sidecar.top.drawing.visible import cut, padded

NAME, STATE = 24, 10

TITLE = (
    Span(
        f"  {'node':<{NAME}} {'state':<{STATE}} {'heard of':>8} {'findings':>8}  ranks",
        Look.HEADING,
    ),
)

WELL = ("member", "spare", "attached")
"""States that nobody has to look at."""


def nodes(canvas: Canvas) -> Body:
    """The list; who is in trouble stands first."""
    shown = [one for one in canvas.view.nodes if _is_looked_for(one, canvas.choice.filter)]
    shown.sort(key=lambda one: (one.state in WELL, one.node))

    def draw(number: int) -> Line:
        return _row(shown[number], canvas)

    empty = "no node has these words" if canvas.view.nodes else "no node is known"
    return Body(TITLE, [one.node for one in shown], draw, empty)


def _row(one: NodeView, canvas: Canvas) -> Line:
    signs, now_unix_s = canvas.signs, canvas.view.now_unix_s
    name = cut(said(one.node, signs).text, NAME, signs.more)
    state = cut(said(one.state, signs).text, STATE, signs.more)
    heard = (
        UNKNOWN if one.heartbeat_unix_s is None else short_span(now_unix_s - one.heartbeat_unix_s)
    )
    look = Look.PLAIN if one.state in WELL else Look.BAD
    return (
        Span("  ") if one.state in WELL else Span("! ", look),
        Span(f"{padded(name, NAME)} "),
        Span(f"{padded(state, STATE)} ", look),
        Span(f"{heard:>8} "),
        Span(f"{one.findings or UNKNOWN:>8}  "),
        Span(", ".join(map(str, sorted(one.ranks))) or UNKNOWN),
        Span(_leads(canvas) if one.is_leader else "", Look.STRONG),
    )


def _leads(canvas: Canvas) -> str:
    """While Redis is away nobody leads for long."""
    return "  leads" if canvas.view.store_up else "  led"


def _is_looked_for(one: NodeView, words: str) -> bool:
    return passes(words, (one.node, one.state), tuple(one.ranks))
