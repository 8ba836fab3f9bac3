"""Where the run's time went: one bar, and the figures below it."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast_sidecar.cli.report_html.drawing import WIDTH, box, key, label, picture, table, text_of
from holdfast_sidecar.cli.report_html.style import COLOURS
from holdfast_sidecar.goodput.summary import Spent, Summary
from holdfast_sidecar.goodput.words import CATEGORIES
from holdfast_sidecar.slow_words import percent
from holdfast_sidecar.span import span

HEIGHT, BAR_HEIGHT = 64.0, 40.0

WIDE_ENOUGH = 0.07
"""A part of the bar with room for its share in it."""


def partition(summary: Summary, hours: str) -> str:
    """The bar and its table."""
    title = "The run's time by what it was spent on"
    return picture(HEIGHT, title, _bar(summary)) + _table(summary, hours)


def _bar(summary: Summary) -> Iterator[str]:
    total_s = sum(one.seconds for one in summary.spent) or 1.0
    x = 0.0
    for one in summary.spent:
        width = WIDTH * one.seconds / total_s
        share = one.seconds / total_s
        name = CATEGORIES[one.category]
        yield box(
            x,
            0,
            width,
            BAR_HEIGHT,
            COLOURS[one.category],
            f"{name}: {span(one.seconds)}, {percent(share)}",
        )
        if share >= WIDE_ENOUGH:
            yield label(x + width / 2, BAR_HEIGHT + 16, f"{name} {percent(share)}", "middle")
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
