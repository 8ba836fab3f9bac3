"""The columns of the table of ranks, and which of them there is room for. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from holdfast_sidecar.export.live.view import GpuView, RankView
from holdfast_sidecar.top.drawing.attention import Attention, is_dead, is_lost
from holdfast_sidecar.top.drawing.canvas import Canvas
from holdfast_sidecar.top.drawing.figures import UNKNOWN, number, share, short_span
from holdfast_sidecar.top.drawing.line import Look, Span, said
from holdfast_sidecar.top.drawing.rows import Row
from holdfast_sidecar.top.drawing.visible import cut, padded, visible, width

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
class Column:
    """One of them. Its figure is that of the rank that stands for the row."""

    heading: str
    width: int
    worth: int
    """The column of least worth goes first when there is no room."""
    figure: Callable[[Row], Span]
    is_text: bool = False

    def cell(self, row: Row, more: str) -> Span:
        """What stands in this row, just as wide as the column."""
        text, look = self.figure(row)
        return Span(padded(cut(text, self.width, more), self.width, not self.is_text), look)

    @property
    def title(self) -> Span:
        """What stands above."""
        return Span(padded(self.heading, self.width, not self.is_text), Look.HEADING)


def chosen(every: Sequence[Column], room: int) -> list[Column]:
    """As many as fit, the worthiest ones, in their own order; one column of blank after each."""
    kept = list(every)
    while kept and sum(one.width + 1 for one in kept) > room:
        kept.remove(min(kept, key=lambda one: one.worth))
    return kept


def columns(canvas: Canvas, rows: Sequence[Row], attention: Attention) -> list[Column]:
    """All that this view has something for."""
    now_unix_s, signs = canvas.view.now_unix_s, canvas.signs
    names = [width(visible(one.worst.node, signs.is_ascii)) for one in rows]
    widest = min(max(names, default=0), 2 * NODE_MOST if canvas.width >= WIDE else NODE_MOST)
    labels = max((len(one.label) for one in rows), default=0)
    has_nodes = any(one.is_node for one in rows)
    ranks = _of_nodes(labels) if has_nodes else [_ranks("rank", labels)]
    why = Column("why", 12, 45, lambda row: said(row.worst.cause, signs), is_text=True)
    return [
        Column("", 1, 100, lambda row: _mark(row, attention), is_text=True),
        *ranks,
        Column("node", max(widest, 4), 80, lambda row: said(row.worst.node, signs), is_text=True),
        Column("phase", 8, 90, lambda row: _phase(row.worst), is_text=True),
        Column("for", 5, 40, lambda row: Span(_age(row.worst, now_unix_s))),
        Column("step", _step_width(rows), 20, lambda row: Span(number(row.worst.step))),
        Column("time", 6, 85, lambda row: Span(short_span(row.worst.step_s))),
        Column("own", 6, 50, lambda row: Span(short_span(row.worst.own_s))),
        Column("slow", 5, 84, lambda row: _slowdown(row.worst)),
        *([why] if any(one.cause for one in canvas.view.ranks) else []),
        *(_gpu_columns() if any(one.worst.gpu for one in rows) else []),
    ]


def _of_nodes(labels: int) -> list[Column]:
    worst = Column("worst", 5, 88, lambda row: Span(str(row.worst.rank) if row.is_node else ""))
    return [_ranks("ranks", labels), worst]


def _ranks(heading: str, labels: int) -> Column:
    width_of_it = max(labels, len(heading))
    return Column(heading, width_of_it, 99, lambda row: Span(row.label), is_text=True)


def _mark(row: Row, attention: Attention) -> Span:
    rank, node = row.worst, row.worst.node if row.is_node else None
    if attention.is_urgent(rank) or node in attention.acting:
        return Span("!", Look.BAD)
    if rank.silence:
        return Span(UNHEARD, Look.DOUBTFUL)
    is_due = attention.is_due(rank) or node in attention.told
    return Span("*", Look.DOUBTFUL) if is_due else Span(" ")


def _phase(rank: RankView) -> Span:
    if is_dead(rank):
        return Span("lost" if is_lost(rank) else "gone", Look.BAD)
    name = rank.busy or PHASES.get(rank.phase, rank.phase)
    is_now = rank.alive and not rank.silence
    return Span(visible(name, is_ascii=True), Look.PLAIN if is_now else Look.DIM)


def _age(rank: RankView, now_unix_s: float) -> str:
    if rank.heard_unix_s is not None:
        return short_span(now_unix_s - rank.heard_unix_s)
    if not rank.phase_since_unix_s:
        return UNKNOWN
    return short_span(now_unix_s - rank.phase_since_unix_s)


def _step_width(rows: Sequence[Row]) -> int:
    return max(4, len(number(max((one.worst.step for one in rows), default=0))))


def _slowdown(rank: RankView) -> Span:
    if rank.slowdown is None:
        return Span(UNKNOWN, Look.DIM)
    return Span(f"+{share(rank.slowdown)}", Look.BAD if rank.slowdown >= MUCH else Look.DOUBTFUL)


def _gpu_columns() -> list[Column]:
    return [
        Column("gpu", 4, 60, lambda row: _of_gpu(row, lambda gpu: share(gpu.busy))),
        Column("°C", 3, 55, lambda row: _of_gpu(row, lambda gpu: _whole(gpu.temperature_c))),
        Column("mem", 4, 54, lambda row: _of_gpu(row, lambda gpu: share(_memory(gpu)))),
        Column("MHz", 4, 30, lambda row: _of_gpu(row, _clock)),
        Column("W", 4, 29, lambda row: _of_gpu(row, lambda gpu: _whole(gpu.power_w))),
    ]


def _of_gpu(row: Row, figure: Callable[[GpuView], str]) -> Span:
    gpu = row.worst.gpu
    return Span(UNKNOWN, Look.DIM) if gpu is None else Span(figure(gpu))


def _whole(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.0f}"


def _clock(gpu: GpuView) -> str:
    return UNKNOWN if gpu.clock_hz is None else f"{gpu.clock_hz / 1e6:.0f}"


def _memory(gpu: GpuView) -> float | None:
    if gpu.memory_used_bytes is None or not gpu.memory_size_bytes:
        return None
    return gpu.memory_used_bytes / gpu.memory_size_bytes
