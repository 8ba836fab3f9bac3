"""The pane of ranks: a table, and ranks x time beside it. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from holdfast_sidecar.cli.tui.heading import Headline, attention, is_dead, is_lost
from holdfast_sidecar.cli.tui.heatmap import timeline
from holdfast_sidecar.cli.tui.state import NODE_KEY, Grouping, Order, ViewState
from holdfast_sidecar.cli.tui.text import (
    UNKNOWN,
    Body,
    Canvas,
    Line,
    Span,
    TextStyle,
    amount,
    cut,
    joined,
    number,
    padded,
    read_in_full,
    said,
    share,
    short_span,
    visible,
    width,
)
from holdfast_sidecar.export.live.view import GpuView, LiveView, RankView
from holdfast_sidecar.records.formatting import span

# All that a view knows of one rank, in lines. Pure.

HEAD = 12
"""Columns of the word before each figure."""


def details(rank: RankView, view: LiveView) -> Iterator[str]:
    """A line for each thing that is known."""
    yield _line("phase", _phase_detail(rank, view.now_unix_s))
    yield _line("step", number(rank.step))
    for head, seconds in (
        ("step time", rank.step_s),
        ("own work", rank.own_s),
        ("waiting", rank.wait_s),
    ):
        if seconds is not None:
            yield _line(head, f"{span(seconds)} a step")
    if rank.slowdown is not None:
        why = f", cause: {rank.cause}" if rank.cause else ""
        yield _line("slow", f"{share(rank.slowdown)} slower than its peers{why}")
    if rank.gpu is not None:
        yield from _gpu(rank.gpu)
    for one in view.findings:
        if one.rank == rank.rank or (one.rank is None and one.node == rank.node):
            yield _line("finding", f"{one.kind}: {one.words}" if one.words else one.kind)
    for slow in view.slow:
        if slow.rank == rank.rank and slow.advice:
            yield _line("next", slow.advice)


def _phase_detail(rank: RankView, now_unix_s: float) -> str:
    dead = "lost" if is_lost(rank) else "gone"
    phase = dead if is_dead(rank) else rank.busy or rank.phase or "not known"
    if rank.heard_unix_s is not None:
        return f"{phase}, last heard {span(max(now_unix_s - rank.heard_unix_s, 0.0))} ago"
    since = f" for {span(now_unix_s - rank.phase_since_unix_s)}"
    return phase + (since if rank.phase_since_unix_s else "")


def _gpu(gpu: GpuView) -> Iterator[str]:
    known = [
        f"{share(gpu.busy)} busy" if gpu.busy is not None else "",
        f"{gpu.temperature_c:.0f} °C" if gpu.temperature_c is not None else "",
        f"{gpu.clock_hz / 1e6:.0f} MHz" if gpu.clock_hz is not None else "",
        f"{gpu.power_w:.0f} W" if gpu.power_w is not None else "",
    ]
    yield _line("GPU", ", ".join(filter(None, known)) or "says nothing")
    if gpu.memory_used_bytes is not None and gpu.memory_size_bytes:
        used, size = amount(gpu.memory_used_bytes), amount(gpu.memory_size_bytes)
        yield _line("GPU memory", f"{used}B of {size}B")


def _line(head: str, text: str) -> str:
    return f"{head:<{HEAD}}{text}"


# Which rows have the words that somebody looks for. Pure.
#
# A whole number means a rank, `8-15` ranks from 8 to 15, anything else what stands in the row. All
# of several words have to be there.

_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")


def passes(words: str, texts: tuple[str, ...], ranks: tuple[int, ...] = ()) -> bool:
    """Whether a row about these ranks, with these texts, is looked for."""
    return all(_has(word, texts, ranks) for word in words.casefold().split())


def _has(word: str, texts: tuple[str, ...], ranks: tuple[int, ...]) -> bool:
    numbers = _RANGE.fullmatch(word)
    if numbers and ranks:
        least = int(numbers[1])
        most = int(numbers[2] or least)
        return any(least <= rank <= most for rank in ranks)
    return any(word in text.casefold() for text in texts)


# Which rows the ranks make: one each while they fit, else one per node, the opened ones apart.
# Pure.

RANK_KEY = "rank "


@dataclass(frozen=True)
class RankRow:
    """A rank, or the ranks of a node, of which the worst stands for all."""

    worst: RankView
    ranks: Sequence[RankView]
    is_node: bool = False
    is_inside: bool = False
    """A rank below its node."""

    @property
    def key(self) -> str:
        """By which it is known again."""
        return f"{NODE_KEY}{self.worst.node}" if self.is_node else f"{RANK_KEY}{self.worst.rank}"

    @property
    def label(self) -> str:
        """`12`, or of a node `8-15`."""
        if not self.is_node:
            return f"{' ' * self.is_inside}{self.worst.rank}"
        numbers = [one.rank for one in self.ranks]
        least, most = min(numbers), max(numbers)
        if most - least + 1 == len(numbers):
            return f"{least}-{most}" if most > least else str(least)
        return f"{least}..{most}"  # with gaps: a node's ranks need not be neighbours


def rows(view: LiveView, choice: ViewState, attention: Headline, room: int) -> list[RankRow]:
    """All rows in their order; `room` says how many can be seen at a time."""
    found = [one for one in view.ranks if _is_looked_for(one, choice.filter)]
    if not is_by_node(choice, len(found), room):
        return _in_order([_of_rank(one) for one in found], view, choice, attention)
    by_node: dict[str, list[RankView]] = {}
    for one in found:
        by_node.setdefault(one.node, []).append(one)
    nodes = [RankRow(attention.worst(ranks), ranks, is_node=True) for ranks in by_node.values()]
    return list(_with_opened(_in_order(nodes, view, choice, attention), view, choice, attention))


def is_by_node(choice: ViewState, ranks: int, room: int) -> bool:
    """Whether a row is a node."""
    if choice.grouping is Grouping.FITTING:
        return ranks > room
    return choice.grouping is Grouping.NODES


def _is_looked_for(rank: RankView, words: str) -> bool:
    life = "" if rank.alive else "gone"
    slow = "" if rank.slowdown is None else "slow"
    return passes(
        words,
        (rank.node, rank.phase, rank.busy, rank.cause, life, slow, rank.silence),
        (rank.rank,),
    )


def _with_opened(
    nodes: Sequence[RankRow], view: LiveView, choice: ViewState, attention: Headline
) -> Iterator[RankRow]:
    for node in nodes:
        yield node
        if node.key in choice.opened:
            inside = [_of_rank(one, is_inside=True) for one in node.ranks]
            yield from _in_order(inside, view, choice, attention)


def _of_rank(rank: RankView, is_inside: bool = False) -> RankRow:
    return RankRow(rank, (rank,), is_inside=is_inside)


def _in_order(
    found: Sequence[RankRow], view: LiveView, choice: ViewState, attention: Headline
) -> list[RankRow]:
    keys: dict[Order, Callable[[RankRow], tuple[float, ...]]] = {
        Order.NUMBER: _number,
        Order.WORST: lambda row: tuple(-part for part in attention.badness(row.worst)),
        Order.STEP_TIME: lambda row: (-max(one.step_s or 0.0 for one in row.ranks), *_number(row)),
        Order.PHASE_AGE: lambda row: (min(_since(one, view) for one in row.ranks), *_number(row)),
    }
    return sorted(found, key=keys[choice.order])


def _number(row: RankRow) -> tuple[float, ...]:
    return (min(one.rank for one in row.ranks),)


def _since(rank: RankView, view: LiveView) -> float:
    """When its phase began; who is done is in it for good, and not to be looked at; of whom nothing
    is heard it is not known how long it has been in it."""
    return rank.phase_since_unix_s if rank.alive and not rank.silence else view.now_unix_s


# The columns of the table of ranks, and which of them there is room for. Pure.

HEAT_LEAST = 24
"""Columns of the heat map that are kept free: with fewer it is no picture of a course."""

NODE_MOST = 12
"""Columns of a node's name, where the screen is not wide."""

WIDE = 120
"""Columns from which on there is room for long names."""

MUCH = 0.5
"""A slowdown from which on it is no longer doubtful that somebody should look."""

UNHEARD = "?"
"""Marks what is as old as `for` says: its node is not heard."""

PHASES = {
    "starting": "start",
    "restoring": "restore",
    "compiling": "compile",
    "communicating": "comm",
    "optimizer": "optim",
    "saving": "save",
    "evaluating": "eval",
    "finished": "done",
    "transferring": "transfer",
}
"""Phases whose names are longer than their column."""


@dataclass(frozen=True)
class RankColumn:
    """One of them. Its figure is that of the rank that stands for the row."""

    heading: str
    width: int
    worth: int
    """The column of least worth goes first when there is no room."""
    figure: Callable[[RankRow], Span]
    is_text: bool = False

    def cell(self, row: RankRow, more: str) -> Span:
        """What stands in this row, just as wide as the column."""
        text, look = self.figure(row)
        return Span(padded(cut(text, self.width, more), self.width, not self.is_text), look)

    @property
    def title(self) -> Span:
        """What stands above."""
        return Span(padded(self.heading, self.width, not self.is_text), TextStyle.HEADING)


def chosen(every: Sequence[RankColumn], room: int) -> list[RankColumn]:
    """As many as fit, the worthiest ones, in their own order; one column of blank after each."""
    kept = list(every)
    while kept and sum(one.width + 1 for one in kept) > room:
        kept.remove(min(kept, key=lambda one: one.worth))
    return kept


def columns(canvas: Canvas, rows: Sequence[RankRow], attention: Headline) -> list[RankColumn]:
    """All that this view has something for."""
    now_unix_s, signs = canvas.view.now_unix_s, canvas.signs
    names = [width(visible(one.worst.node, signs.is_ascii)) for one in rows]
    widest = min(max(names, default=0), 2 * NODE_MOST if canvas.width >= WIDE else NODE_MOST)
    labels = max((len(one.label) for one in rows), default=0)
    has_nodes = any(one.is_node for one in rows)
    ranks = _of_nodes(labels) if has_nodes else [_ranks("rank", labels)]
    why = RankColumn("why", 12, 45, lambda row: said(row.worst.cause, signs), is_text=True)
    return [
        RankColumn("", 1, 100, lambda row: _mark(row, attention), is_text=True),
        *ranks,
        RankColumn(
            "node", max(widest, 4), 80, lambda row: said(row.worst.node, signs), is_text=True
        ),
        RankColumn("phase", 8, 90, lambda row: _phase(row.worst), is_text=True),
        RankColumn("for", 5, 40, lambda row: Span(_age(row.worst, now_unix_s))),
        RankColumn("step", _step_width(rows), 20, lambda row: Span(number(row.worst.step))),
        RankColumn("time", 6, 85, lambda row: Span(short_span(row.worst.step_s))),
        RankColumn("own", 6, 50, lambda row: Span(short_span(row.worst.own_s))),
        RankColumn("slow", 5, 84, lambda row: _slowdown(row.worst)),
        *([why] if any(one.cause for one in canvas.view.ranks) else []),
        *(_gpu_columns() if any(one.worst.gpu for one in rows) else []),
    ]


def _of_nodes(labels: int) -> list[RankColumn]:
    worst = RankColumn("worst", 5, 88, lambda row: Span(str(row.worst.rank) if row.is_node else ""))
    return [_ranks("ranks", labels), worst]


def _ranks(heading: str, labels: int) -> RankColumn:
    width_of_it = max(labels, len(heading))
    return RankColumn(heading, width_of_it, 99, lambda row: Span(row.label), is_text=True)


def _mark(row: RankRow, attention: Headline) -> Span:
    rank, node = row.worst, row.worst.node if row.is_node else None
    if attention.is_urgent(rank) or node in attention.acting:
        return Span("!", TextStyle.BAD)
    if rank.silence:
        return Span(UNHEARD, TextStyle.DOUBTFUL)
    is_due = attention.is_due(rank) or node in attention.told
    return Span("*", TextStyle.DOUBTFUL) if is_due else Span(" ")


def _phase(rank: RankView) -> Span:
    if is_dead(rank):
        return Span("lost" if is_lost(rank) else "gone", TextStyle.BAD)
    name = rank.busy or PHASES.get(rank.phase, rank.phase)
    is_now = rank.alive and not rank.silence
    return Span(visible(name, is_ascii=True), TextStyle.PLAIN if is_now else TextStyle.DIM)


def _age(rank: RankView, now_unix_s: float) -> str:
    if rank.heard_unix_s is not None:
        return short_span(now_unix_s - rank.heard_unix_s)
    if not rank.phase_since_unix_s:
        return UNKNOWN
    return short_span(now_unix_s - rank.phase_since_unix_s)


def _step_width(rows: Sequence[RankRow]) -> int:
    return max(4, len(number(max((one.worst.step for one in rows), default=0))))


def _slowdown(rank: RankView) -> Span:
    if rank.slowdown is None:
        return Span(UNKNOWN, TextStyle.DIM)
    return Span(
        f"+{share(rank.slowdown)}", TextStyle.BAD if rank.slowdown >= MUCH else TextStyle.DOUBTFUL
    )


def _gpu_columns() -> list[RankColumn]:
    return [
        RankColumn("gpu", 4, 60, lambda row: _of_gpu(row, lambda gpu: share(gpu.busy))),
        RankColumn("°C", 3, 55, lambda row: _of_gpu(row, lambda gpu: _whole(gpu.temperature_c))),
        RankColumn("mem", 4, 54, lambda row: _of_gpu(row, lambda gpu: share(_memory(gpu)))),
        RankColumn("MHz", 4, 30, lambda row: _of_gpu(row, _clock)),
        RankColumn("W", 4, 29, lambda row: _of_gpu(row, lambda gpu: _whole(gpu.power_w))),
    ]


def _of_gpu(row: RankRow, figure: Callable[[GpuView], str]) -> Span:
    gpu = row.worst.gpu
    return Span(UNKNOWN, TextStyle.DIM) if gpu is None else Span(figure(gpu))


def _whole(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.0f}"


def _clock(gpu: GpuView) -> str:
    return UNKNOWN if gpu.clock_hz is None else f"{gpu.clock_hz / 1e6:.0f}"


def _memory(gpu: GpuView) -> float | None:
    if gpu.memory_used_bytes is None or not gpu.memory_size_bytes:
        return None
    return gpu.memory_used_bytes / gpu.memory_size_bytes


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
