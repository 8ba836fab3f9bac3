"""A row for each of many, time from left to right: states, and heat."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from builders.names import Json
from builders.panel import Scale, Words, legend, panel
from builders.query import Query

ROWS_A_PAGE = 32
"""More rows of a timeline than this can't be told apart; Grafana 10, which knows no pages, squeezes
them."""

COLUMNS = 120
"""A heat map's columns: each stays some ten pixels wide on a screen, and of 1,024 ranks no more
values are asked for than a browser draws at once."""


@dataclass(frozen=True)
class Heat:
    """From which value on a cell is at its coldest, to which at its hottest, in which colours."""

    coldest: float
    hottest: float
    scheme: str
    is_turned: bool = False
    """Bright where values are small."""


def states(words: Words, scale: Scale, queries: Sequence[Query]) -> Json:
    """A state timeline: equal neighbours are one bar."""
    options = {
        "alignValue": "left",
        "legend": legend(),
        "mergeValues": True,
        "perPage": ROWS_A_PAGE,
        "rowHeight": 0.9,
        "showValue": "never",
        "tooltip": {"mode": "single", "sort": "none"},
    }
    custom = {"fillOpacity": 85, "lineWidth": 0}
    return panel("state-timeline", words, queries, scale, options, custom)


def heat(words: Words, scale: Scale, queries: Sequence[Query], colours: Heat) -> Json:
    """A heat map whose rows are the series, in the order of their numbers where they have some."""
    options = {
        "calculate": False,
        "cellGap": 0,
        "cellValues": {"unit": scale.unit, "decimals": 2},
        "color": {
            "exponent": 0.5,
            "fill": "dark-orange",
            "max": colours.hottest,
            "min": colours.coldest,
            "mode": "scheme",
            "reverse": colours.is_turned,
            "scale": "linear",
            "scheme": colours.scheme,
            "steps": 64,
        },
        "exemplars": {"color": "rgba(255,0,255,0.7)"},
        "filterValues": {"le": -1e9},  # else what is 0, a culprit that never waits, is not drawn
        "legend": {"show": True},
        "rowsFrame": {"layout": "auto"},
        "showValue": "never",
        "tooltip": {"mode": "single", "showColorScale": True, "yHistogram": False},
        "yAxis": {"axisPlacement": "left", "reverse": True},
    }
    custom = {"scaleDistribution": {"type": "linear"}}
    made = panel("heatmap", words, queries, scale, options, custom)
    return made | {"maxDataPoints": COLUMNS}
