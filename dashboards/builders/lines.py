"""Values over time: lines, and areas that share a whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from builders.names import Json
from builders.panel import Scale, Words, legend, panel, tooltip
from builders.query import Query, over_time


@dataclass(frozen=True)
class Style:
    """How lines are drawn."""

    stacking: str = "none"
    """`normal` adds up, `percent` shares a whole."""
    axis: str = "linear"
    """`log` for what is never 0 or less, `symlog` for the rest."""
    limits: bool = False
    """Whether the scale's steps are drawn as lines."""
    bars: bool = False
    legend_at: str = "bottom"


def lines(words: Words, scale: Scale, queries: Sequence[Query], style: Style | None = None) -> Json:
    """A time series panel. A gap stays a gap: nothing was known then."""
    style = style or Style()
    options = {"legend": legend(style.legend_at), "tooltip": tooltip()}
    made = panel("timeseries", words, queries, scale, options, _custom(style))
    if style.limits:
        # Steps are for the lines of the limits here: series keep colours of their own.
        made["fieldConfig"]["defaults"]["color"] = {"mode": "palette-classic"}
    return made


def one_line(words: Words, unit: str, expr: str, legend: str) -> Json:
    """A query's lines from 0 on: what most panels over time are."""
    return lines(words, Scale(unit, least=0), [over_time(expr, legend)])


def _custom(style: Style) -> Json:
    stacked = style.stacking != "none"
    return {
        "axisBorderShow": False,
        "axisLabel": "",
        "axisPlacement": "auto",
        "drawStyle": "bars" if style.bars else "line",
        "fillOpacity": 80 if stacked or style.bars else 8,
        "lineInterpolation": "stepAfter" if stacked else "linear",
        "lineWidth": 0 if stacked else 1,
        "pointSize": 4,
        "scaleDistribution": _distribution(style.axis),
        "showPoints": "auto",
        "spanNulls": False,
        "stacking": {"group": "A", "mode": style.stacking},
        "thresholdsStyle": {"mode": "line" if style.limits else "off"},
    }


def _distribution(axis: str) -> Json:
    if axis == "linear":
        return {"type": "linear"}
    if axis == "log":
        return {"type": "log", "log": 10}
    return {"type": "symlog", "log": 10, "linearThreshold": 1}
