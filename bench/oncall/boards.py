"""How long the dashboards' queries take at 1,024 ranks, on a Prometheus that scrapes them."""

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
from bench.oncall.names import BOARDS
from bench.oncall.watched import watched

FOLDER = Path(__file__).resolve().parents[2] / "dashboards"

GATHERED_S = 600.0
"""What there is to look at when the first is asked, and what is asked for."""
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


def measure(ranks: int) -> list[Sample]:
    """Every query of every dashboard, three times each; the middle one counts."""
    with watched(ranks) as (server, _):
        time.sleep(GATHERED_S)
        return [_timed(server, one, ranks) for board in BOARDS for one in queries(load(board))]


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


def _timed(server: Prometheus, asked: Asked, ranks: int) -> Sample:
    told = [_ask(server, asked) for _ in range(TIMES)]
    return {
        "ranks": ranks,
        "board": asked.board,
        "panel": asked.panel,
        "s": sorted(took_s for took_s, _ in told)[TIMES // 2],
        "all_s": [took_s for took_s, _ in told],
        "series": told[-1][1],
    }


def _ask(server: Prometheus, asked: Asked) -> tuple[float, int]:
    if not asked.points:
        return server.timed("query", {"query": asked.expression})
    now = time.time()
    words = {
        "start": f"{now - GATHERED_S:.3f}",
        "end": f"{now:.3f}",
        "step": f"{GATHERED_S / asked.points:.3f}",
    }
    return server.timed("query_range", {"query": asked.expression, **words})
