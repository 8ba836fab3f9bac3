"""The pane of findings: what was found that has not passed; what is acted on stands first. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from holdfast_sidecar.export.live.view import FindingView
from holdfast_sidecar.records.formatting import span
from holdfast_sidecar.top.drawing.canvas import Body, Canvas, read_in_full
from holdfast_sidecar.top.drawing.figures import short_span
from holdfast_sidecar.top.drawing.line import Line, Look, Span, said
from holdfast_sidecar.top.drawing.sieve import passes
from holdfast_sidecar.top.drawing.visible import cut, padded

KIND = 18
"""Columns of the longest kind."""

TITLE = (Span(f"  {'since':>5}  {'what':<{KIND}}  where and why", Look.HEADING),)


def findings(canvas: Canvas) -> Body:
    """The list, or all of one."""
    keyed = keys(canvas.view.findings)
    read = [one for one, key in keyed if key == canvas.choice.read]
    if read:
        return read_in_full(read[0].kind, _told(read[0], canvas), canvas)
    shown = [(one, key) for one, key in keyed if _is_looked_for(one, canvas.choice.filter)]

    def draw(number: int) -> Line:
        return _row(shown[number][0], canvas)

    empty = "no finding has these words" if keyed else "nothing is found to be wrong"
    return Body(TITLE, [key for _, key in shown], draw, empty)


def keys(found: Sequence[FindingView]) -> list[tuple[FindingView, str]]:
    """Each finding with what it is known again by: one node may have several of a kind."""
    seen: dict[str, int] = {}
    keyed = []
    for one in found:
        name = f"{one.kind} {one.node} {one.rank}"
        seen[name] = seen.get(name, 0) + 1
        keyed.append((one, f"{name} {seen[name]}"))
    return keyed


def words(one: FindingView) -> str:
    """Who it is about, and why."""
    if one.words:
        return one.words
    return one.node if one.rank is None else f"rank {one.rank} on {one.node}"


def _told(one: FindingView, canvas: Canvas) -> Iterator[str]:
    yield words(one)
    yield f"found {span(max(canvas.view.now_unix_s - one.since_unix_s, 0.0))} ago"
    yield "sure enough to act on" if one.acts else "told, and nothing is ended for it"


def _row(one: FindingView, canvas: Canvas) -> Line:
    signs = canvas.signs
    look = Look.BAD if one.acts else Look.DOUBTFUL
    kind = cut(said(one.kind, signs).text, KIND, signs.more)
    since = short_span(canvas.view.now_unix_s - one.since_unix_s)
    return (
        Span("! ", look) if one.acts else Span("  "),
        Span(f"{since:>5}  "),
        Span(f"{padded(kind, KIND)}  ", look),
        said(words(one), signs),
    )


def _is_looked_for(one: FindingView, looked_for: str) -> bool:
    ranks = () if one.rank is None else (one.rank,)
    return passes(looked_for, (one.kind, one.node, one.words), ranks)
