"""All that a view knows of one rank, in lines. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast_sidecar.export.live.view import GpuView, LiveView, RankView
from holdfast_sidecar.records.formatting import span
from holdfast_sidecar.top.drawing.attention import is_dead, is_lost
from holdfast_sidecar.top.drawing.figures import amount, number, share

HEAD = 12
"""Columns of the word before each figure."""


def details(rank: RankView, view: LiveView) -> Iterator[str]:
    """A line for each thing that is known."""
    yield _line("phase", _phase(rank, view.now_unix_s))
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


def _phase(rank: RankView, now_unix_s: float) -> str:
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
