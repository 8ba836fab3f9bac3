"""The dashboards against Grafana's own schema, which `schema/README.md` says how to make anew."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.extras import package
from tests.unit.dashboards.boards import UIDS, Json, load, panels

jsonschema = package("jsonschema")

SCHEMAS = Path(__file__).parent / "schema"
OF_PROMETHEUS = ("expr", "step", "titleFormat", "textFormat", "tagKeys")
"""Keys that a data source adds to an annotation query of its own; Grafana's schema has none."""


def schema(name: str) -> Json:
    read: Json = json.loads((SCHEMAS / f"{name}.schema.json").read_text())
    return read


def plain(board: Json) -> Json:
    """Without what data sources add."""
    board = copy.deepcopy(board)
    for mark in board["annotations"]["list"]:
        for key in OF_PROMETHEUS:
            mark.pop(key, None)
    return board


def faults(board: Json) -> list[str]:
    validator = jsonschema.Draft7Validator(schema("dashboard"))
    found = [f"{fault.json_path}: {fault.message}" for fault in validator.iter_errors(plain(board))]
    for panel in panels(board):
        found += _faults_of(panel, f"{panel['type']}.options", panel["options"])
        custom = panel["fieldConfig"]["defaults"]["custom"]
        found += _faults_of(panel, f"{panel['type']}.custom", custom)
    return found


def _faults_of(panel: Json, name: str, value: Json) -> list[str]:
    if not (SCHEMAS / f"{name}.schema.json").exists():
        assert value == {}, f"no schema for {name}"
        return []
    validator = jsonschema.Draft7Validator(schema(name))
    return [
        f"{panel['title']}: {name}{fault.json_path[1:]}: {fault.message}"
        for fault in validator.iter_errors(value)
    ]


@pytest.mark.parametrize("uid", UIDS)
def test_a_dashboard_is_valid_by_grafanas_own_schema(uid: str) -> None:
    assert faults(load(uid)) == []


PLANTED: tuple[Callable[[Json], object], ...] = (
    lambda board: board.update(refreshes="30s"),
    lambda board: next(panels(board))["fieldConfig"]["defaults"].update(unti="s"),
    lambda board: next(panels(board))["gridPos"].update(w="12"),
    lambda board: next(panels(board))["options"].update(colorMode="rainbow"),
)


@pytest.mark.parametrize("plant", PLANTED)
def test_a_slip_is_found(plant: Callable[[Json], object]) -> None:
    board = copy.deepcopy(load("holdfast-fleet"))
    plant(board)
    assert faults(board)
