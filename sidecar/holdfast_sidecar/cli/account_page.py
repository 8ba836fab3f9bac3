"""A run's account as a page for people: where its time went, what each incident cost, what would
gain most. Pure, except that paint looks at the terminal."""

from __future__ import annotations

import time
from collections.abc import Iterator

from holdfast_sidecar.cli.columns import bar_width, wrapped
from holdfast_sidecar.cli.table import BAD, GOOD, paint, table
from holdfast_sidecar.performance.goodput.summary import (
    CATEGORIES,
    PENDING_WORDS,
    PHASES,
    Billed,
    Spent,
    Summary,
    name_gain,
)
from holdfast_sidecar.records.account import Category
from holdfast_sidecar.records.formatting import exact_percent, percent, span

BAR, EIGHTHS = "█", ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")

FIGURES = 72
"""Columns of a category's name, of its time, its share, its hours and its price."""

INDENT = 15

INCIDENTS_SHOWN = 12
GAINS_SHOWN = 4


def page(summary: Summary, hours: str) -> str:
    """All of it. hours: what an hour of a rank is called."""
    parts = [
        "\n".join(_heading(summary, hours)),
        "\n".join(_partition(summary, hours)),
        _incidents(summary, hours),
        _lost(summary, hours),
        "\n".join(_gains(summary)),
    ]
    return "\n\n".join(part for part in parts if part)


def _heading(summary: Summary, hours: str) -> Iterator[str]:
    since = time.strftime("%Y-%m-%d %H:%M", time.localtime(summary.began_unix_s))
    over = ", over" if summary.is_over else ""
    yield from wrapped("run", f"{span(summary.life_s)} since {since}{over}", INDENT)
    if summary.goodput is not None and summary.ettr is not None:
        share = exact_percent(summary.goodput)
        well = paint(share, GOOD if summary.goodput >= 0.9 else BAD)
        trained = f"; it trained for {exact_percent(summary.ettr)} (ETTR)"
        yield f"{'goodput':<{INDENT}}{well} of it was productive and stands{trained}"
    if bad := summary.bad_gpu_hours:
        paid = "" if summary.bad_money is None else f", {summary.bad_money:,.2f} {summary.currency}"
        yield from wrapped("without use", f"{bad:,.2f} {hours}{paid}", INDENT)
    yield from wrapped("failures", _failures(summary), INDENT)


def _failures(summary: Summary) -> str:
    one = summary.reliability
    if not one.failures or one.mtbf_s is None:
        return "none so far"
    told = [f"{one.failures}, one in {span(one.mtbf_s)}"]
    if one.mttd_s is not None:
        told.append(f"seen after {span(one.mttd_s)}")
    if one.mttr_s is not None:
        told.append(f"mended after {span(one.mttr_s)} in the mean")
    if one.phases_s is not None:
        parts = (f"{PHASES[name]} {span(took)}" for name, took in one.phases_s.items() if took)
        told.append(f"a restart: {', '.join(parts)}")
    return "; ".join(told)


def _partition(summary: Summary, hours: str) -> Iterator[str]:
    yield _headings(summary, hours)
    longest = max((one.seconds for one in summary.spent), default=0.0)
    for one in summary.spent:
        yield _row(one, longest)
    if summary.pending_s >= 1.0:
        yield f"{PENDING_WORDS:<26}{span(summary.pending_s):>12}"


def _headings(summary: Summary, hours: str) -> str:
    paid = f"{summary.currency:>12}" if summary.currency else ""
    figures = f"{'time':>12}{'share':>9}{hours:>13}{paid}"
    return f"{'where the run went':<26}{'':<{bar_width(FIGURES)}}{figures}"


def _row(one: Spent, longest: float) -> str:
    width = bar_width(FIGURES)
    bar = f"{_filled(width * one.seconds / longest if longest else 0.0):<{width}}"
    if one.category == Category.PRODUCTIVE.value:
        bar = paint(bar, GOOD)
    paid = "" if one.money is None else f"{one.money:>12,.2f}"
    name = CATEGORIES[one.category]
    figures = f"{span(one.seconds):>12}{percent(one.share):>9}{one.gpu_hours:>13,.2f}{paid}"
    return f"{name:<26}{bar}{figures}"


def _filled(columns: float) -> str:
    """A bar so many columns long, to an eighth of one; what is there at all is seen."""
    eighths = max(1, round(8 * columns))
    return BAR * (eighths // 8) + EIGHTHS[eighths % 8]


def _incidents(summary: Summary, hours: str) -> str:
    rows = [_incident(one, summary) for one in summary.billed[:INCIDENTS_SHOWN]]
    if not rows:
        return ""
    headings = ["incident", "cause", "node", "standing", "done again", hours]
    left = len(summary.billed) - len(rows)
    more = f"\nand {left} before these" if left else ""
    return table(headings + [summary.currency] * bool(summary.currency), rows) + more


def _incident(one: Billed, summary: Summary) -> list[str]:
    down = "not over" if one.down_s is None else span(one.down_s)
    again = "-" if not one.lost_steps else f"{one.lost_steps:,} steps, {span(one.lost_s or 0.0)}"
    hours = "-" if one.gpu_hours is None else f"{one.gpu_hours:,.2f}"
    paid = "-" if one.money is None else f"{one.money:,.2f}"
    told = [one.identifier, one.cause, one.node or "-", down, again, hours]
    return told + [paid] * bool(summary.currency)


def _lost(summary: Summary, hours: str) -> str:
    rows = [
        [
            cause,
            node or "-",
            span(one.seconds),
            f"{one.steps:,}",
            f"{one.gpu_seconds / 3600:,.2f}",
        ]
        for cause, node, one in summary.lost_by
    ]
    return table(["done again for", "node", "time", "steps", hours], rows) if rows else ""


def _gains(summary: Summary) -> Iterator[str]:
    shown = [one for one in summary.gains if one.what != Category.PAUSED.value][:GAINS_SHOWN]
    if shown:
        yield "what would gain most"
    for one in shown:
        told = f"{name_gain(one.what)}, {span(one.seconds)}: {one.advice}"
        yield from wrapped(percent(one.share), told, INDENT)
