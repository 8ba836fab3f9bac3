"""The committed dashboards, and ways to look through them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Json = dict[str, Any]

FOLDER = Path(__file__).parents[3] / "dashboards"
UIDS = (
    "holdfast-fleet",
    "holdfast-node",
    "holdfast-ranks",
    "holdfast-recovery",
    "holdfast-run",
    "holdfast-self",
)


def load(uid: str) -> Json:
    model: Json = json.loads((FOLDER / f"{uid}.json").read_text(encoding="utf-8"))
    return model


def panels(board: Json) -> Iterator[Json]:
    """All that show something, those of folded rows too."""
    for panel in board["panels"]:
        if panel["type"] == "row":
            yield from panel["panels"]
        else:
            yield panel


def variables(board: Json) -> dict[str, Json]:
    return {one["name"]: one for one in board["templating"]["list"]}


def expressions(board: Json) -> Iterator[tuple[str, str]]:
    """(where, expression) of every query of panels, marks and variables."""
    for panel in panels(board):
        for target in panel["targets"]:
            yield f"{panel['title']} {target['refId']}", target["expr"]
    for mark in board["annotations"]["list"]:
        if "expr" in mark:
            yield f"mark {mark['name']}", mark["expr"]
    for name, variable in variables(board).items():
        if variable["type"] == "query":
            asked = re.fullmatch(r"label_values\((.*), \w+\)", variable["query"]["query"])
            assert asked is not None, variable["query"]
            yield f"variable {name}", asked[1]


@dataclass(frozen=True)
class Question:
    """A query of a panel or a mark, as it is asked when somebody looks."""

    where: str
    expression: str
    is_instant: bool


def questions(board: Json) -> Iterator[Question]:
    """All that a dashboard asks, folded rows opened."""
    for panel in panels(board):
        for target in panel["targets"]:
            where = f"{panel['title']} {target['refId']}"
            yield Question(where, as_promql(target["expr"]), target["instant"])
    for mark in board["annotations"]["list"]:
        if "expr" in mark:
            yield Question(f"mark {mark['name']}", as_promql(mark["expr"]), False)


def as_promql(expression: str) -> str:
    """With values in place of what Grafana fills in."""
    for name, value in (("$__rate_interval", "1m"), ("$__range", "6h"), ("$ranks", "32")):
        expression = expression.replace(name, value)
    expression = expression.replace("$cluster", ".*")
    return re.sub(r"\$(job|run|node)\b", ".+", expression)
