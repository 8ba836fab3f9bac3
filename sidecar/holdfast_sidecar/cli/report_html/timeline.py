"""The run from its begin to now, with its incidents: when it stood, and what was done again."""

from __future__ import annotations

import time
from collections.abc import Iterator

from holdfast_sidecar.cli.report_html.drawing import WIDTH, box, label, line, picture
from holdfast_sidecar.cli.report_html.style import AGAIN, COLOURS
from holdfast_sidecar.performance.goodput.summary import Billed, Summary
from holdfast_sidecar.records.formatting import span

TOP, TALL, AXIS = 26.0, 34.0, 82.0
TICKS = 6
NAME_WIDTH = 74.0
"""Room that a name takes: of incidents that lie closer together one is named."""


def timeline(summary: Summary) -> str:
    """Green where it ran, dark where it stood, orange below where work was done that was lost."""
    if summary.until_unix_s <= summary.began_unix_s:
        return ""
    title = "The run and its incidents over time"
    return picture(AXIS + 24, title, _parts(summary))


def _parts(summary: Summary) -> Iterator[str]:
    yield box(0, TOP, WIDTH, TALL, COLOURS["productive"], "the run")
    free = 0.0
    for one in reversed(summary.billed):
        start = _x(one.at_unix_s, summary)
        yield from _incident(one, summary, start)
        if free <= start <= WIDTH - NAME_WIDTH:
            yield label(start, TOP - 8, one.cause, css="soft")
            free = start + NAME_WIDTH
    yield from _axis(summary)


def _incident(one: Billed, summary: Summary, start: float) -> Iterator[str]:
    stood_s = sum(one.phases_s.values()) if one.down_s is None else one.down_s
    end = _x(one.at_unix_s + stood_s, summary)
    where = f" on {one.node}" if one.node else ""
    if one.lost_s:
        lost = _x(one.at_unix_s - one.lost_s, summary)
        words = f"{one.identifier}: {span(one.lost_s)} of work before it was done again"
        yield box(lost, TOP + TALL, start - lost, 7, AGAIN, words)
    words = f"{one.identifier}: {one.cause}{where}, {span(stood_s)} without progress"
    yield box(start, TOP, end - start, TALL, COLOURS["hang_undetected"], words)


def _axis(summary: Summary) -> Iterator[str]:
    yield line(0, AXIS - 8, WIDTH, AXIS - 8)
    life_s = summary.until_unix_s - summary.began_unix_s
    form = "%d %b %H:%M" if life_s > 86400 else "%H:%M" if life_s > 600 else "%H:%M:%S"
    for index in range(TICKS + 1):
        at = summary.began_unix_s + life_s * index / TICKS
        x = WIDTH * index / TICKS
        anchor = "start" if index == 0 else "end" if index == TICKS else "middle"
        yield line(x, AXIS - 8, x, AXIS - 3)
        yield label(x, AXIS + 12, time.strftime(form, time.localtime(at)), anchor, "soft")


def _x(at_unix_s: float, summary: Summary) -> float:
    life_s = summary.until_unix_s - summary.began_unix_s
    return WIDTH * min(max((at_unix_s - summary.began_unix_s) / life_s, 0.0), 1.0)
