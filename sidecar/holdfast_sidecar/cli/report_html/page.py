"""The whole page: headline figures, then one part after the other."""

from __future__ import annotations

import time
from collections.abc import Iterator

from holdfast_sidecar.cli.report_html.drawing import WIDTH, box, label, picture, text_of, words_of
from holdfast_sidecar.cli.report_html.incidents import incidents
from holdfast_sidecar.cli.report_html.partition import partition
from holdfast_sidecar.cli.report_html.steps import steps
from holdfast_sidecar.cli.report_html.style import AGAIN, COLOURS, STYLE
from holdfast_sidecar.cli.report_html.timeline import timeline
from holdfast_sidecar.performance.goodput.summary import Summary, name_gain
from holdfast_sidecar.records.formatting import exact_percent, percent, span
from holdfast_sidecar.records.reports import Performance

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
