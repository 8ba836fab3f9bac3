"""The pane of slow ranks: who, how much, why, and what would be gained without it. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast_sidecar.export.live.view import SlowView
from holdfast_sidecar.top.drawing.canvas import Body, Canvas, read_in_full
from holdfast_sidecar.top.drawing.figures import number, share
from holdfast_sidecar.top.drawing.line import Line, Look, Span, said
from holdfast_sidecar.top.drawing.sieve import passes
from holdfast_sidecar.top.drawing.visible import cut, padded

WHO, CAUSE = 20, 16

TITLE = (Span(f"  slower   gain  {'who':<{WHO}}  {'why':<{CAUSE}} sure  what helps", Look.HEADING),)

MUCH_PERCENT = 50.0
"""As `rank_columns.MUCH`."""


def slow(canvas: Canvas) -> Body:
    """The list, or all of one; whoever costs most stands first."""
    read = [one for one in canvas.view.slow if _key(one) == canvas.choice.read]
    if read:
        return read_in_full(f"{who(read[0])} is slow", _told(read[0]), canvas)
    shown = [one for one in canvas.view.slow if _is_looked_for(one, canvas.choice.filter)]
    shown.sort(key=lambda one: (-one.gain, -one.percent, one.rank))

    def draw(row: int) -> Line:
        return _row(shown[row], canvas)

    empty = "nobody slow has these words" if canvas.view.slow else "nobody is slow"
    return Body(TITLE, [_key(one) for one in shown], draw, empty)


def who(one: SlowView) -> str:
    """`rank 5 on b`; without a rank it is a node, or a link of it."""
    if one.rank < 0:
        return f"node {one.node}"
    return f"rank {one.rank} on {one.node}" if one.node else f"rank {one.rank}"


def _key(one: SlowView) -> str:
    return f"{one.rank} {one.node} {one.cause}"


def _told(one: SlowView) -> Iterator[str]:
    yield f"{one.percent:.0f}% slower than its peers since step {number(one.since_step)}"
    yield f"cause: {one.why or one.cause or 'not known'} ({share(one.confidence)} sure)"
    yield f"without it the job would be {share(one.gain)} faster"
    if one.advice:
        yield one.advice


def _row(one: SlowView, canvas: Canvas) -> Line:
    signs = canvas.signs
    look = Look.BAD if one.percent >= MUCH_PERCENT else Look.DOUBTFUL
    name = cut(said(who(one), signs).text, WHO, signs.more)
    cause = cut(said(one.cause, signs).text, CAUSE, signs.more)
    return (
        Span(f"{f'+{one.percent:.0f}%':>8}", look),
        Span(f"  {share(one.gain):>5}  {padded(name, WHO)}  "),
        Span(f"{padded(cause, CAUSE)} {share(one.confidence):>4}  "),
        said(one.advice, signs),
    )


def _is_looked_for(one: SlowView, words: str) -> bool:
    return passes(words, (one.node, one.cause, one.advice), (one.rank,))
