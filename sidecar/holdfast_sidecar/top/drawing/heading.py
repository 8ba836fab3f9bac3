"""The three lines on top: how the job stands, what is wrong with it, and how fresh all this is.
Pure."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast_sidecar.export.live.view import LiveView
from holdfast_sidecar.records.formatting import span
from holdfast_sidecar.top.choice import Choice, Order, Pane
from holdfast_sidecar.top.drawing.figures import amount, counted, number, share, short_span
from holdfast_sidecar.top.drawing.line import Line, Look, Span, columns, fitted, joined, said
from holdfast_sidecar.top.drawing.signs import Signs
from holdfast_sidecar.top.latest import Latest

LINES = 3

STATES = {"running": Look.GOOD, "done": Look.GOOD, "stopped": Look.BAD}
"""How a state looks; all others pass, and are doubtful."""

LIGHTS = {
    "green": ("", Look.GOOD),
    "yellow": ("~ ", Look.DOUBTFUL),
    "red": ("! ", Look.BAD),
}
"""The sign and the look of what is wrong; without a light there is nothing to judge."""


def heading(
    latest: Latest, choice: Choice, now_s: float, width: int, signs: Signs
) -> tuple[Line, Line, Line]:
    """The lines, none wider than the screen. `now_s` is monotonic."""
    fresh = _fresh(latest, choice, now_s, width, signs)
    view = latest.view
    if view is None:
        return fitted((Span("nothing is known of the job so far"),), width, signs), (), fresh
    standing = _as_many_as_fit(list(_standing(view, signs)), width, signs)
    return standing, fitted(_verdict(view, signs), width, signs), fresh


def _standing(view: LiveView, signs: Signs) -> Iterator[Line]:
    """The most important first."""
    yield (said(view.run or "?", signs, Look.STRONG),)
    yield (said(view.state or "not known", signs, STATES.get(view.state, Look.DOUBTFUL)),)
    if view.step is not None:
        yield (Span(f"step {number(view.step)}"),)
    if view.step_s is not None:
        yield (Span(f"{short_span(view.step_s)}/step"),)
    if view.goodput is not None:
        yield (Span(f"goodput {share(view.goodput, 1)}"),)
    if view.attempt is not None:
        restarts = f" ({counted(view.restarts, 'restart')})" if view.restarts else ""
        yield (Span(f"attempt {view.attempt}{restarts}"),)
    if view.mfu is not None:
        yield (Span(f"MFU {share(view.mfu)}"),)
    if view.tokens_per_s is not None:
        yield (Span(f"{amount(view.tokens_per_s)} tokens/s"),)
    if saved := _saved(view):
        yield (Span(saved),)


def _saved(view: LiveView) -> str:
    """`saved 12,000, writing 12,500 (40%)`."""
    known, parts = view.checkpoint, []
    if known.durable_step is not None:
        parts.append(f"saved {number(known.durable_step)}")
    if known.writing_step is not None:
        part = "" if known.writing_share is None else f" ({share(known.writing_share)})"
        parts.append(f"writing {number(known.writing_step)}{part}")
    return ", ".join(parts)


def _verdict(view: LiveView, signs: Signs) -> Line:
    sign, look = LIGHTS.get(view.light, ("", Look.PLAIN))
    also = f"; also: {'; '.join(view.warnings)}" if view.warnings else ""
    told = view.headline.removesuffix(".") if also else view.headline
    return Span(sign, look), said(told, signs, look), said(also, signs)


def _fresh(latest: Latest, choice: Choice, now_s: float, width: int, signs: Signs) -> Line:
    parts: list[Line] = []
    silence_s = latest.silence_s(now_s)
    if silence_s is not None:
        parts.append((said(_silence(latest, silence_s), signs, Look.BAD),))
    if choice.is_paused:
        parts.append((Span("PAUSED (p goes on)", Look.DOUBTFUL),))
    if choice.filter:
        parts.append((said(f"only: {choice.filter} (Esc: all)", signs, Look.DOUBTFUL),))
    if choice.pane is Pane.RANKS and choice.order is not Order.NUMBER:
        parts.append((Span(choice.order.value),))
    if silence_s is None and latest.view is not None:
        parts.append((said(_told_by(latest.view), signs, Look.DIM),))
    return fitted(joined(parts), width, signs)


def _silence(latest: Latest, silence_s: float) -> str:
    shown = "" if latest.view is None else " (old picture)"
    return f"NO ANSWER for {span(silence_s)}{shown}: {latest.why}"


def _told_by(view: LiveView) -> str:
    if not view.node:
        return "told by Redis alone: no sidecar of the job can be reached from here"
    if not view.store_up:
        return f"told by {view.node}; Redis is away, what is marked ? is as it was last heard"
    if view.is_leader:
        return f"told by {view.node}, which leads"
    leads = f"{view.leader_node} leads" if view.leader_node else "nobody leads"
    return f"told by {view.node}; {leads}"


def _as_many_as_fit(parts: list[Line], width: int, signs: Signs) -> Line:
    while len(parts) > 1 and columns(joined(parts)) > width:
        parts = parts[:-1]
    return fitted(joined(parts), width, signs)
