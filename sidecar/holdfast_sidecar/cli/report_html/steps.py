"""Where a step's time goes, as far as ranks told of their steps."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast_sidecar.cli.report_html.drawing import WIDTH, box, label, picture, text_of
from holdfast_sidecar.cli.report_html.style import COLOURS
from holdfast_sidecar.cli.report_page import PARTS
from holdfast_sidecar.records.formatting import exact_percent, percent, span
from holdfast_sidecar.records.reports import Performance
from holdfast_sidecar.records.steps import Efficiency

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
    drawn = picture(ROW * len(shown) + 8, "Where a step's time goes", _bars(one, shown))
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


def _bars(one: Efficiency, shown: list[str]) -> Iterator[str]:
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
