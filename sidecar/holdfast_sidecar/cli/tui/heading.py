"""The three lines on top: how the job stands, what is wrong with it, and how fresh all this is.
Pure.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from holdfast_sidecar.cli.tui.heatmap import LETTERS, legend, level
from holdfast_sidecar.cli.tui.state import Latest, Order, Pane, ViewState
from holdfast_sidecar.cli.tui.text import (
    Body,
    Canvas,
    Line,
    Signs,
    Span,
    TextStyle,
    amount,
    columns,
    counted,
    fitted,
    joined,
    listed,
    number,
    padded,
    said,
    share,
    short_span,
)
from holdfast_sidecar.export.live.view import LiveView, RankView
from holdfast_sidecar.records.formatting import span

LINES = 3

STATES = {"running": TextStyle.GOOD, "done": TextStyle.GOOD, "stopped": TextStyle.BAD}
"""How a state looks; all others pass, and are doubtful."""

LIGHTS = {
    "green": ("", TextStyle.GOOD),
    "yellow": ("~ ", TextStyle.DOUBTFUL),
    "red": ("! ", TextStyle.BAD),
}
"""The sign and the look of what is wrong; without a light there is nothing to judge."""


def heading(
    latest: Latest, choice: ViewState, now_s: float, width: int, signs: Signs
) -> tuple[Line, Line, Line]:
    """The lines, none wider than the screen. `now_s` is monotonic."""
    fresh = _fresh(latest, choice, now_s, width, signs)
    view = latest.view
    if view is None:
        return fitted((Span("nothing is known of the job so far"),), width, signs), (), fresh
    standing = _as_many_as_fit(list(_status_lines(view, signs)), width, signs)
    return standing, fitted(_verdict(view, signs), width, signs), fresh


def _status_lines(view: LiveView, signs: Signs) -> Iterator[Line]:
    """The most important first."""
    yield (said(view.run or "?", signs, TextStyle.STRONG),)
    yield (said(view.state or "not known", signs, STATES.get(view.state, TextStyle.DOUBTFUL)),)
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
    sign, look = LIGHTS.get(view.light, ("", TextStyle.PLAIN))
    also = f"; also: {'; '.join(view.warnings)}" if view.warnings else ""
    told = view.headline.removesuffix(".") if also else view.headline
    return Span(sign, look), said(told, signs, look), said(also, signs)


def _fresh(latest: Latest, choice: ViewState, now_s: float, width: int, signs: Signs) -> Line:
    parts: list[Line] = []
    silence_s = latest.silence_s(now_s)
    if silence_s is not None:
        parts.append((said(_silence(latest, silence_s), signs, TextStyle.BAD),))
    if choice.is_paused:
        parts.append((Span("PAUSED (p goes on)", TextStyle.DOUBTFUL),))
    if choice.filter:
        parts.append((said(f"only: {choice.filter} (Esc: all)", signs, TextStyle.DOUBTFUL),))
    if choice.pane is Pane.RANKS and choice.order is not Order.NUMBER:
        parts.append((Span(choice.order.value),))
    if silence_s is None and latest.view is not None:
        parts.append((said(_told_by(latest.view), signs, TextStyle.DIM),))
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


# Which ranks and nodes want looking at, and which of several most. Pure.

LOST = "lost"
"""Silence of a rank whose node is lost."""

ENDED_WELL = "finished"
"""Phase of a rank that is gone because it is done."""


@dataclass(frozen=True)
class Headline:
    """What findings point at."""

    acting: frozenset[int | str]
    """Ranks, and machines by their names, about which something is sure enough to act on."""
    told: frozenset[int | str]
    """Those about which anything was found."""
    usual_s: float = 0.0
    """Own work of the rank in the middle; 0: nobody told."""

    def is_urgent(self, rank: RankView) -> bool:
        """Whether this rank is dead, or something is done about it."""
        return is_dead(rank) or rank.rank in self.acting

    def is_due(self, rank: RankView) -> bool:
        """Whether anything at all is said against it."""
        return rank.rank in self.told or rank.slowdown is not None

    def worst(self, ranks: Iterable[RankView]) -> RankView:
        """The one to look at first; the first of those that are all well."""
        return max(ranks, key=self.badness)

    def badness(self, rank: RankView) -> tuple[float, ...]:
        """The higher, the worse. Equal ones keep their order though their times vary a little: what
        is told apart here looks different in the map, too."""
        found = (rank.rank in self.acting) + (rank.rank in self.told)
        own = level(rank.own_s / self.usual_s) if rank.own_s and self.usual_s else 0
        return is_dead(rank), found, bool(rank.silence), rank.slowdown or 0.0, own, -rank.rank


def attention(view: LiveView) -> Headline:
    """What this view's findings point at."""
    told = [(one.node if one.rank is None else one.rank, one.acts) for one in view.findings]
    return Headline(
        acting=frozenset(whom for whom, acts in told if acts),
        told=frozenset(whom for whom, _ in told),
        usual_s=statistics.median([one.own_s for one in view.ranks if one.own_s] or [0.0]),
    )


def is_dead(rank: RankView) -> bool:
    """Whether its process is gone though its work was not done."""
    return not rank.alive and rank.phase != ENDED_WELL


def is_lost(rank: RankView) -> bool:
    """Whether it is gone with its node."""
    return is_dead(rank) and rank.silence == LOST


# The pane of help: keys, and what the signs of the pictures mean. Pure.

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

MARKS: tuple[tuple[str, TextStyle, str], ...] = (
    ("!", TextStyle.BAD, "dead, or acted on"),
    ("?", TextStyle.DOUBTFUL, "not heard now: as of then"),
    ("*", TextStyle.DOUBTFUL, "slow, or something found"),
)

KEY = 13


def help_page(canvas: Canvas) -> Body:
    """All of it."""
    return listed((Span("keys", TextStyle.STRONG),), list(_lines(canvas)))


def _lines(canvas: Canvas) -> Iterator[Line]:
    for key, words in KEYS:
        line = (Span(padded(key, KEY), TextStyle.STRONG), Span(words))
        yield fitted(line, canvas.width, canvas.signs)
    yield ()
    yield (Span("own time of a rank, against the middle of its peers", TextStyle.STRONG),)
    yield from _folded(legend(canvas.signs), canvas.width)
    yield ()
    yield (Span("where no step ended: what it did", TextStyle.STRONG),)
    phases = [(Span(letter, TextStyle.DIM), Span(f" {phase}")) for phase, letter in LETTERS.items()]
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
