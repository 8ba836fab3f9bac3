"""A run's report as one HTML page with plots in it: no script, nothing fetched from anywhere."""

from __future__ import annotations

import html
import re
import time
from collections.abc import Iterable, Iterator, Sequence

from holdfast_sidecar.cli.report_pages import PARTS
from holdfast_sidecar.performance.goodput.summary import (
    CATEGORIES,
    PHASES,
    Billed,
    CategoryTime,
    Summary,
    name_gain,
)
from holdfast_sidecar.records.account import Category
from holdfast_sidecar.records.formatting import exact_percent, percent, span
from holdfast_sidecar.records.reports import Performance
from holdfast_sidecar.records.steps import Efficiency

# Small pieces of SVG and HTML, escaped; what they are put together to, the other files say.

WIDTH = 960.0
"""Units of every picture's width; it is as wide on the page as there is room."""

LEAST_WIDTH = 1.0
"""What lasted a moment of a long run is seen all the same."""


def text_of(words: str) -> str:
    """Words as they may stand in a page."""
    return html.escape(words, quote=True)


def words_of(sentence: str) -> str:
    """A sentence with `commands` in it."""
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", text_of(sentence))


def picture(height: float, title: str, parts: Iterable[str]) -> str:
    """An SVG picture, with words for who can't see it."""
    return (
        f'<svg viewBox="0 0 {WIDTH:g} {height:g}" role="img" aria-label="{text_of(title)}">'
        f"{''.join(parts)}</svg>"
    )


def box(x: float, y: float, width: float, height: float, colour: str, title: str = "") -> str:
    """A filled rectangle; `title` is shown where the pointer rests on it."""
    told = f"<title>{text_of(title)}</title>" if title else ""
    shown = max(width, LEAST_WIDTH)
    return (
        f'<rect x="{x:.2f}" y="{y:g}" width="{shown:.2f}" height="{height:g}" fill="{colour}">'
        f"{told}</rect>"
    )


def line(x1: float, y1: float, x2: float, y2: float) -> str:
    """A thin line, as axes have it."""
    return f'<line class="axis" x1="{x1:.2f}" y1="{y1:g}" x2="{x2:.2f}" y2="{y2:g}"/>'


def label(x: float, y: float, words: str, anchor: str = "start", css: str = "") -> str:
    """Words in a picture."""
    styled = f' class="{css}"' if css else ""
    return f'<text x="{x:.2f}" y="{y:g}" text-anchor="{anchor}"{styled}>{text_of(words)}</text>'


def key(colour: str) -> str:
    """The small square that says which colour is meant."""
    return f'<span class="key" style="background:{colour}"></span>'


def table(headings: Sequence[str], rows: Iterable[Sequence[str]], numbers: Sequence[int]) -> str:
    """A table; cells are HTML already. numbers: columns that are set to the right."""

    def cells(row: Sequence[str], tag: str) -> str:
        to_right = [' class="n"' if index in numbers else "" for index in range(len(row))]
        return "".join(
            f"<{tag}{css}>{cell}</{tag}>" for css, cell in zip(to_right, row, strict=True)
        )

    body = "".join(f"<tr>{cells(row, 'td')}</tr>" for row in rows)
    head = cells([text_of(one) for one in headings], "th")
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


# How the page looks: colours that a colour-blind eye tells apart, by day and by night.

COLOURS = {
    "productive": "#009e73",
    "data_wait": "#e69f00",
    "saving": "#56b4e9",
    "evaluating": "#0072b2",
    "compiling": "#cc79a7",
    "straggler": "#d55e00",
    "warmup": "#8da0cb",
    "init": "#a9a9a9",
    "setup": "#8c8c8c",
    "restore": "#5b7f9e",
    "hang_undetected": "#7f0000",
    "draining": "#b2182b",
    "restart": "#ef6548",
    "paused": "#8c6bb1",
    "queued": "#d0d0d0",
    "unobserved": "#f0e442",
    "other": "#404040",
}
"""Category -> colour: Okabe and Ito's for what training itself does, greys for starts, reds for
faults."""

PHASE_COLOURS = {
    "detect": COLOURS["hang_undetected"],
    "drain": COLOURS["draining"],
    "rendezvous": COLOURS["restart"],
    "restore": COLOURS["restore"],
    "first_step": COLOURS["warmup"],
}

AGAIN = "#d55e00"
"""Work that is done again."""

STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #57606a; --line: #d0d7de; --ground: #fff;
  --card: #f6f8fa; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --soft: #9198a1; --line: #3d444d;
  --ground: #0d1117; --card: #161b22; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 62rem; padding: 2rem 1.25rem 4rem; background: var(--ground);
  color: var(--ink); font: 16px/1.5 system-ui, -apple-system, "Segoe UI", sans-serif; }
h1 { font-size: 1.6rem; margin: 0; } h2 { font-size: 1.1rem; margin: 2.75rem 0 .5rem; }
p { margin: .35rem 0; } .soft { color: var(--soft); font-size: .9rem; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(11rem, 1fr)); gap: .75rem;
  margin: 1.5rem 0 0; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: .5rem;
  padding: .7rem .9rem; }
.card b { display: block; font-size: 1.55rem; font-weight: 650; line-height: 1.25;
  font-variant-numeric: tabular-nums; }
svg { display: block; width: 100%; height: auto; overflow: visible; }
svg text { fill: var(--ink); font: 12px system-ui, sans-serif; } svg .soft { fill: var(--soft);
  font-size: 12px; }
svg .axis { stroke: var(--line); stroke-width: 1; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; margin-top: .75rem;
  font-variant-numeric: tabular-nums; }
th { text-align: left; color: var(--soft); font-weight: 500; }
th, td { padding: .28rem .6rem .28rem 0; border-bottom: 1px solid var(--line);
  vertical-align: top; }
.n { text-align: right; padding-right: 1rem; } .key { display: inline-block; width: .75rem;
  height: .75rem; border-radius: .15rem; margin-right: .45rem; }
@media print { body { max-width: none; } .card { break-inside: avoid; } }
"""


# Each incident: a bar of the parts of its restart, and what it cost.

SHOWN = 24
ROW, LEFT = 24.0, 190.0


def incidents(summary: Summary, hours: str) -> str:
    """The newest ones; empty where nothing happened."""
    shown = summary.billed[:SHOWN]
    if not shown:
        return "<p>Nothing went wrong so far.</p>"
    left = len(summary.billed) - len(shown)
    more = f'<p class="soft">{left} earlier ones are not shown.</p>' if left else ""
    drawn = picture(ROW * len(shown) + 8, "Restarts by their parts", _incident_bars(shown))
    return _keys() + drawn + _incident_table(shown, summary, hours) + more


def _keys() -> str:
    named = (f"{key(PHASE_COLOURS[name])}{text_of(words)}" for name, words in PHASES.items())
    return f'<p class="soft">{" &nbsp; ".join(named)}</p>'


def _incident_bars(shown: Sequence[Billed]) -> Iterator[str]:
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


def _incident_table(shown: Sequence[Billed], summary: Summary, hours: str) -> str:
    headings = ["when", "incident", "cause", "node", "without progress", "done again", hours]
    headings += [summary.currency] if summary.currency else []
    rows = [_incident_row(one, bool(summary.currency)) for one in shown]
    return table(headings, rows, numbers=(4, 5, 6, 7))


def _incident_row(one: Billed, is_paid: bool) -> list[str]:
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


# Where the run's time went: one bar, and the figures below it.

HEIGHT, BAR_HEIGHT = 142.0, 36.0
LENS_TOP, LENS_HEIGHT = 82.0, 36.0
"""The second bar shows what was not productive as if it were all."""

WIDE_ENOUGH = 7.0
"""Room that a letter takes below the bar."""


def partition(summary: Summary, hours: str) -> str:
    """The bar and its table."""
    title = "The run's time by what it was spent on"
    return picture(HEIGHT, title, _partition_bars(summary)) + _table(summary, hours)


def _partition_bars(summary: Summary) -> Iterator[str]:
    total_s = sum(one.seconds for one in summary.spent) or 1.0
    rest = [one for one in summary.spent if one.category != Category.PRODUCTIVE.value]
    rest_s = sum(one.seconds for one in rest)
    yield from _bar(summary.spent, total_s, 0.0, BAR_HEIGHT)
    if 0 < rest_s < total_s:
        yield line(WIDTH * (1 - rest_s / total_s), BAR_HEIGHT, 0, LENS_TOP)
        yield line(WIDTH, BAR_HEIGHT, WIDTH, LENS_TOP)
        yield from _bar(rest, rest_s, LENS_TOP, LENS_HEIGHT)


def _bar(parts: Sequence[CategoryTime], total_s: float, y: float, height: float) -> Iterator[str]:
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


def _row(one: CategoryTime, is_paid: bool) -> list[str]:
    name = key(COLOURS[one.category]) + text_of(CATEGORIES[one.category])
    paid = ["-" if one.money is None else f"{one.money:,.2f}"] if is_paid else []
    return [name, span(one.seconds), percent(one.share), f"{one.gpu_hours:,.2f}", *paid]


# Where a step's time goes, as far as ranks told of their steps.

ROW, LEFT = 24.0, 230.0

PART_COLOURS = {
    "data": COLOURS["data_wait"],
    "communicating": COLOURS["saving"],
    "lost": COLOURS["compiling"],
}


def steps(performance: Performance | None) -> str:
    """A bar for each part of the middle rank's step; empty: nobody judged them."""
    standing = None if performance is None else performance.standing
    one = None if standing is None else standing.efficiency
    if one is None or not one.parts_us or not one.step_s:
        return ""
    shown = [part for part in PARTS if one.parts_us.get(part)]
    drawn = picture(ROW * len(shown) + 8, "Where a step's time goes", _step_bars(one, shown))
    return f"<h2>Where a step's time goes</h2><p>{text_of(_words(one))}</p>{drawn}"


def _words(one: Efficiency) -> str:
    told = [f"A step takes {span(one.step_s or 0.0)} in the mean"]
    if one.tokens_per_s is not None:
        told.append(f"{one.tokens_per_s:,.0f} tokens a second")
    if one.mfu is not None:
        told.append(f"MFU {exact_percent(one.mfu)}")
    if one.communication_share is not None:
        told.append(f"{percent(one.communication_share)} of it exposed communication")
    return ", ".join(told) + "."


def _step_bars(one: Efficiency, shown: list[str]) -> Iterator[str]:
    total_us = (one.step_s or 1.0) * 1e6
    longest = max(one.parts_us[part] for part in shown)
    scale = (WIDTH - LEFT - 150) / longest
    for index, part in enumerate(shown):
        y, spent = ROW * index + 4, one.parts_us[part]
        colour = PART_COLOURS.get(part, COLOURS["productive"])
        yield label(LEFT - 10, y + 13, PARTS[part], "end")
        yield box(LEFT, y, spent * scale, ROW - 8, colour)
        share = f"{span(spent / 1e6)}, {percent(spent / total_us)}"
        yield label(LEFT + spent * scale + 8, y + 13, share, css="soft")


# The run from its begin to now, with its incidents: when it stood, and what was done again.

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


# The whole page: headline figures, then one part after the other.

ROW, LEFT = 24.0, 230.0

UNKNOWN = "-"


def page(
    job: str,
    summary: Summary | None,
    performance: Performance | None,
    hours: str,
    now_unix_s: float,
) -> str:
    """One HTML file. hours: what an hour of a rank is called."""
    title = f"{job}: where the time went"
    parts = [f"<h1>{text_of(job)}</h1>", *_body(summary, performance, hours)]
    made = time.strftime("%Y-%m-%d %H:%M", time.localtime(now_unix_s))
    parts.append(
        f'<p class="soft">Made by holdfast report on {made}; times are this machine\'s.</p>'
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{text_of(title)}</title><style>{STYLE}</style></head>\n"
        f"<body>{''.join(parts)}</body></html>\n"
    )


def _body(summary: Summary | None, performance: Performance | None, hours: str) -> Iterator[str]:
    if summary is None:
        yield "<p>Nobody has kept an account of this run's time.</p>"
    else:
        yield _when(summary, hours)
        yield _cards(summary, hours)
        yield "<h2>Where the run's time went</h2>" + partition(summary, hours)
        yield "<h2>The run and its incidents</h2>" + timeline(summary)
        yield "<h2>What each incident cost</h2>" + incidents(summary, hours)
        yield _gains(summary)
    yield steps(performance)


def _when(summary: Summary, hours: str) -> str:
    began = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(summary.began_unix_s))
    over = ", over" if summary.is_over else ", under way"
    who = hours.partition(" ")[0]
    told = f"{span(summary.life_s)} since {began}, {summary.gpus:,} {who}s{over}"
    return f'<p class="soft">{told}</p>'


def _cards(summary: Summary, hours: str) -> str:
    one = summary.reliability
    cards = [
        ("goodput", UNKNOWN if summary.goodput is None else exact_percent(summary.goodput)),
        ("trained (ETTR)", UNKNOWN if summary.ettr is None else exact_percent(summary.ettr)),
        ("failures", str(one.failures)),
        ("between failures", UNKNOWN if one.mtbf_s is None else span(one.mtbf_s)),
        ("until seen", UNKNOWN if one.mttd_s is None else span(one.mttd_s)),
        ("until mended", UNKNOWN if one.mttr_s is None else span(one.mttr_s)),
        (f"{hours} without use", f"{summary.bad_gpu_hours:,.1f}"),
    ]
    if summary.bad_money is not None:
        cards.append((f"{summary.currency} without use", f"{summary.bad_money:,.0f}"))
    shown = (
        f'<div class="card"><b>{text_of(figure)}</b><span class="soft">{text_of(name)}</span></div>'
        for name, figure in cards
    )
    return f'<div class="cards">{"".join(shown)}</div>'


def _gains(summary: Summary) -> str:
    if not summary.gains:
        return ""
    drawn = picture(ROW * len(summary.gains) + 8, "What would gain most", _gain_bars(summary))
    advice = "".join(
        f"<li><b>{text_of(name_gain(one.what))}</b>: {words_of(one.advice)}</li>"
        for one in summary.gains
    )
    return f"<h2>What would gain most</h2>{drawn}<ul>{advice}</ul>"


def _gain_bars(summary: Summary) -> Iterator[str]:
    scale = (WIDTH - LEFT - 150) / (max(one.share for one in summary.gains) or 1.0)
    for index, one in enumerate(summary.gains):
        y = ROW * index + 4
        yield label(LEFT - 10, y + 13, name_gain(one.what), "end")
        yield box(LEFT, y, one.share * scale, ROW - 8, COLOURS.get(one.what, AGAIN))
        told = f"{span(one.seconds)}, {percent(one.share)}"
        yield label(LEFT + one.share * scale + 8, y + 13, told, css="soft")
