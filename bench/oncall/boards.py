"""How long the dashboards' queries take."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.benchmark import Sample
from bench.oncall.monitors import Prometheus

FOLDER = Path(__file__).resolve().parents[2] / "dashboards"

POINTS = 1000
"""About a panel's width in pixels: as many Grafana asks for, whatever the range, where the panel
does not say how many. So the work is that of the six hours that a dashboard opens with, but for
reading less from the disk."""
TIMES = 3

FILLED_IN = {"$__rate_interval": "1m", "$__range": "10m", "$ranks": "32", "$cluster": ".*"}


@dataclass(frozen=True)
class Asked:
    """A query of a panel."""

    board: str
    panel: str
    expression: str
    points: int
    """0: one moment's value."""


def timed(server: Prometheus, board: str, ranks: int, over_s: float) -> list[Sample]:
    """Every query of a dashboard over so many seconds, three times each; the middle one counts."""
    return [_timed(server, one, ranks, over_s) for one in queries(load(board))]


def load(board: str) -> dict[str, Any]:
    """A dashboard as it is shipped."""
    model: dict[str, Any] = json.loads((FOLDER / f"{board}.json").read_text(encoding="utf-8"))
    return model


def queries(model: dict[str, Any]) -> Iterator[Asked]:
    """Those of all panels, folded rows too."""
    for panel in _panels(model):
        for target in panel.get("targets", ()):
            yield Asked(
                model["uid"],
                f"{panel['title']} {target['refId']}",
                as_promql(target["expr"]),
                0 if target["instant"] else int(panel.get("maxDataPoints") or POINTS),
            )


def _panels(model: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for panel in model["panels"]:
        if panel["type"] == "row":
            yield from panel["panels"]
        else:
            yield panel


def as_promql(expression: str) -> str:
    """With values in place of what Grafana fills in: everything that there is."""
    for name, value in FILLED_IN.items():
        expression = expression.replace(name, value)
    return re.sub(r"\$(job|run|node)\b", ".+", expression)


def _timed(server: Prometheus, asked: Asked, ranks: int, over_s: float) -> Sample:
    told = [_ask(server, asked, over_s) for _ in range(TIMES)]
    return {
        "ranks": ranks,
        "board": asked.board,
        "panel": asked.panel,
        "s": sorted(took_s for took_s, _ in told)[TIMES // 2],
        "all_s": [took_s for took_s, _ in told],
        "series": told[-1][1],
    }


def _ask(server: Prometheus, asked: Asked, over_s: float) -> tuple[float, int]:
    if not asked.points:
        return server.timed("query", {"query": asked.expression})
    now = time.time()
    words = {
        "start": f"{now - over_s:.3f}",
        "end": f"{now:.3f}",
        "step": f"{over_s / asked.points:.3f}",
    }
    return server.timed("query_range", {"query": asked.expression, **words})
