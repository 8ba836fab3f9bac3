"""Where the run's time went: one bar, and the figures below it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from holdfast_sidecar.cli.report_html.drawing import (
    WIDTH,
    box,
    key,
    label,
    line,
    picture,
    table,
    text_of,
)
from holdfast_sidecar.cli.report_html.style import COLOURS
from holdfast_sidecar.performance.goodput.summary import CATEGORIES, Spent, Summary
from holdfast_sidecar.records.account import Category
from holdfast_sidecar.records.formatting import percent, span

HEIGHT, BAR_HEIGHT = 142.0, 36.0
LENS_TOP, LENS_HEIGHT = 82.0, 36.0
"""The second bar shows what was not productive as if it were all."""

WIDE_ENOUGH = 7.0
"""Room that a letter takes below the bar."""


def partition(summary: Summary, hours: str) -> str:
    """The bar and its table."""
    title = "The run's time by what it was spent on"
    return picture(HEIGHT, title, _bars(summary)) + _table(summary, hours)


def _bars(summary: Summary) -> Iterator[str]:
    total_s = sum(one.seconds for one in summary.spent) or 1.0
    rest = [one for one in summary.spent if one.category != Category.PRODUCTIVE.value]
    rest_s = sum(one.seconds for one in rest)
    yield from _bar(summary.spent, total_s, 0.0, BAR_HEIGHT)
    if 0 < rest_s < total_s:
        yield line(WIDTH * (1 - rest_s / total_s), BAR_HEIGHT, 0, LENS_TOP)
        yield line(WIDTH, BAR_HEIGHT, WIDTH, LENS_TOP)
        yield from _bar(rest, rest_s, LENS_TOP, LENS_HEIGHT)


def _bar(parts: Sequence[Spent], total_s: float, y: float, height: float) -> Iterator[str]:
    x = 0.0
    for one in parts:
        width = WIDTH * one.seconds / total_s
        name = CATEGORIES[one.category]
        told = f"{name}: {span(one.seconds)}, {percent(one.share)}"
        yield box(x, y, width, height, COLOURS[one.category], told)
        if width >= WIDE_ENOUGH * (len(name) + 6):
            words = f"{name} {percent(one.share)}"
            yield label(x + width / 2, y + height + 16, words, "middle")
        x += width


def _table(summary: Summary, hours: str) -> str:
    headings = ["", "time", "of the run", hours]
    headings += [summary.currency] if summary.currency else []
    rows = [_row(one, bool(summary.currency)) for one in summary.spent]
    return table(headings, rows, numbers=(1, 2, 3, 4))


def _row(one: Spent, is_paid: bool) -> list[str]:
    name = key(COLOURS[one.category]) + text_of(CATEGORIES[one.category])
    paid = ["-" if one.money is None else f"{one.money:,.2f}"] if is_paid else []
    return [name, span(one.seconds), percent(one.share), f"{one.gpu_hours:,.2f}", *paid]
