"""The shipped dashboards, as they are pushed."""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True)
class Board:
    """One dashboard; its uid is the same in every Grafana."""

    uid: str
    title: str
    model: Json


def read_boards(folder: Path) -> list[Board]:
    """Every dashboard of this folder, by name. OSError and ValueError as they come."""
    boards = []
    for path in sorted(folder.glob("holdfast-*.json")):
        model = json.loads(path.read_text(encoding="utf-8"))
        boards.append(Board(model["uid"], model["title"], model))
    return boards


def with_source(board: Board, uid: str, name: str) -> Board:
    """The same with this data source chosen at its top; others can still be chosen there."""
    model = copy.deepcopy(board.model)
    for variable in model["templating"]["list"]:
        if variable["type"] == "datasource":
            variable["current"] = {"selected": False, "text": name, "value": uid}
    return Board(board.uid, board.title, model)
