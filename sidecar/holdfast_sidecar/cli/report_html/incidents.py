"""Each incident: a bar of the parts of its restart, and what it cost."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from holdfast_sidecar.cli.report_html.drawing import WIDTH, box, key, label, picture, table, text_of
from holdfast_sidecar.cli.report_html.style import PHASE_COLOURS
from holdfast_sidecar.performance.goodput.summary import PHASES, Billed, Summary
from holdfast_sidecar.records.formatting import span

SHOWN = 24
ROW, LEFT = 24.0, 190.0


def incidents(summary: Summary, hours: str) -> str:
    """The newest ones; empty where nothing happened."""
    shown = summary.billed[:SHOWN]
    if not shown:
        return "<p>Nothing went wrong so far.</p>"
    left = len(summary.billed) - len(shown)
    more = f'<p class="soft">{left} earlier ones are not shown.</p>' if left else ""
    drawn = picture(ROW * len(shown) + 8, "Restarts by their parts", _bars(shown))
    return _keys() + drawn + _table(shown, summary, hours) + more


def _keys() -> str:
    named = (f"{key(PHASE_COLOURS[name])}{text_of(words)}" for name, words in PHASES.items())
    return f'<p class="soft">{" &nbsp; ".join(named)}</p>'


def _bars(shown: Sequence[Billed]) -> Iterator[str]:
    longest = max((sum(one.phases_s.values()) for one in shown), default=0.0) or 1.0
    scale = (WIDTH - LEFT - 80) / longest
    for index, one in enumerate(shown):
        y, x = ROW * index + 4, LEFT
        where = f" on {one.node}" if one.node else ""
        yield label(LEFT - 10, y + 13, f"{one.cause}{where}", "end")
        for name in PHASES:
            took = one.phases_s.get(name, 0.0)
            if took > 0:
                title = f"{PHASES[name]}: {span(took)}"
                yield box(x, y, took * scale, ROW - 8, PHASE_COLOURS[name], title)
                x += took * scale
        yield label(x + 8, y + 13, span(sum(one.phases_s.values())), css="soft")


def _table(shown: Sequence[Billed], summary: Summary, hours: str) -> str:
    headings = ["when", "incident", "cause", "node", "without progress", "done again", hours]
    headings += [summary.currency] if summary.currency else []
    rows = [_row(one, bool(summary.currency)) for one in shown]
    return table(headings, rows, numbers=(4, 5, 6, 7))


def _row(one: Billed, is_paid: bool) -> list[str]:
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(one.at_unix_s))
    again = f"{one.lost_steps:,} steps, {span(one.lost_s or 0.0)}" if one.lost_steps else "-"
    paid = ["-" if one.money is None else f"{one.money:,.2f}"] if is_paid else []
    return [
        at,
        f"<code>{text_of(one.identifier)}</code>",
        text_of(one.cause),
        text_of(one.node or "-"),
        "not over" if one.down_s is None else span(one.down_s),
        again,
        "-" if one.gpu_hours is None else f"{one.gpu_hours:,.2f}",
        *paid,
    ]
