"""One value that is red or is not; a bar for each of a few; a whole and its parts."""

from __future__ import annotations

from collections.abc import Sequence

from builders.colours import BAD, GOOD, PLAIN, WATCH
from builders.names import Json
from builders.panel import Scale, Words, legend, panel, tooltip
from builders.query import Query, now

LAST = {"calcs": ["lastNotNull"], "fields": "", "values": False}
"""Queries here are instant: the last value is the present one."""


def light(words: Words, scale: Scale, queries: Sequence[Query]) -> Json:
    """A stat with a coloured background, and a name to each value when there are several."""
    return panel("stat", words, queries, scale, _stat("background"), {})


def counted(words: Words, expr: str, legend: str = "") -> Json:
    """Red from one on: of what is counted there should be none."""
    return light(words, bad_from("none", 1), [now(expr, legend)])


def noted(words: Words, expr: str, legend: str = "") -> Json:
    """The same in orange: worth knowing."""
    return light(words, Scale("none", steps=((None, GOOD), (1, WATCH))), [now(expr, legend)])


def increased(words: Words, expr: str, legend: str = "") -> Json:
    """The same for an increase, which is no whole number."""
    scale = Scale("none", decimals=0, steps=((None, GOOD), (0.5, BAD)))
    return light(words, scale, [now(expr, legend)])


def figure(words: Words, scale: Scale, queries: Sequence[Query]) -> Json:
    """A stat that is neither good nor bad."""
    plain = scale if scale.steps else _in(scale, PLAIN)
    return panel("stat", words, queries, plain, _stat("value"), {})


def bars(words: Words, scale: Scale, queries: Sequence[Query]) -> Json:
    """A horizontal bar for each series."""
    options = {
        "displayMode": "basic",
        "legend": legend() | {"showLegend": False},
        "maxVizHeight": 300,
        "minVizHeight": 14,
        "minVizWidth": 8,
        "namePlacement": "auto",
        "orientation": "horizontal",
        "reduceOptions": LAST,
        "showUnfilled": True,
        "sizing": "auto",
        "valueMode": "text",
    }
    shown = scale if scale.steps else _in(scale, PLAIN)
    return panel("bargauge", words, queries, shown, options, {})


def donut(words: Words, scale: Scale, queries: Sequence[Query]) -> Json:
    """A whole and its parts, with their shares."""
    options = {
        "displayLabels": ["percent"],
        "legend": legend("right") | {"values": ["percent"]},
        "orientation": "auto",
        "pieType": "donut",
        "reduceOptions": LAST,
        "sort": "desc",
        "tooltip": tooltip("single"),
    }
    return panel("piechart", words, queries, scale, options, {})


def bad_from(unit: str, bad: float, watch: float | None = None, most: float | None = None) -> Scale:
    """Red from `bad` on, orange from `watch` on."""
    between = [] if watch is None else [(watch, WATCH)]
    return Scale(unit, most=most, steps=((None, GOOD), *between, (bad, BAD)))


def bad_below(
    unit: str, good: float, watch: float | None = None, most: float | None = None
) -> Scale:
    """Green from `good` on, orange from `watch` on, red below."""
    between = [] if watch is None else [(watch, WATCH)]
    return Scale(unit, most=most, steps=((None, BAD), *between, (good, GOOD)))


def _in(scale: Scale, colour: str) -> Scale:
    return Scale(
        scale.unit,
        scale.least,
        scale.most,
        scale.decimals,
        ((None, colour),),
        scale.words,
        scale.colours,
    )


def _stat(mode: str) -> Json:
    return {
        "colorMode": mode,
        "graphMode": "none",
        "justifyMode": "auto",
        "orientation": "auto",
        "percentChangeColorMode": "standard",
        "reduceOptions": LAST,
        "showPercentChange": False,
        "textMode": "auto",
        "wideLayout": True,
    }
