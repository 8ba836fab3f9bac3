"""Where panels lie: rows with a title, filled from left to right, 24 columns wide."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from builders.names import Json

WIDTH = 24


@dataclass(frozen=True)
class Placed:
    """A panel, how many of the 24 columns it takes, and how high it is (a unit is 30 pixels)."""

    panel: Json
    width: int
    height: int


@dataclass(frozen=True)
class Row:
    """Panels under one title. A folded row asks nothing until it is opened."""

    title: str
    panels: Sequence[Placed]
    is_folded: bool = False


def lay(rows: Sequence[Row]) -> list[Json]:
    """All panels with places and numbers, in reading order."""
    laid: list[Json] = []
    number, top = 1, 0
    for row in rows:
        inside, bottom = _fill(row.panels, number + 1, top + 1)
        number_of_row, number = number, number + 1 + len(inside)
        head = _head(row, number_of_row, top, inside if row.is_folded else [])
        laid += [head] if row.is_folded else [head, *inside]
        top = top + 1 if row.is_folded else bottom
    return laid


def _fill(panels: Sequence[Placed], number: int, top: int) -> tuple[list[Json], int]:
    """The panels placed, and where the next row begins."""
    placed: list[Json] = []
    left = height = 0
    for index, one in enumerate(panels):
        if left + one.width > WIDTH:
            left, top, height = 0, top + height, 0
        place = {"h": one.height, "w": one.width, "x": left, "y": top}
        placed.append({"id": number + index, "gridPos": place} | one.panel)
        left, height = left + one.width, max(height, one.height)
    return placed, top + height


def _head(row: Row, number: int, top: int, inside: list[Json]) -> Json:
    return {
        "collapsed": row.is_folded,
        "gridPos": {"h": 1, "w": WIDTH, "x": 0, "y": top},
        "id": number,
        "panels": inside,
        "title": row.title,
        "type": "row",
    }
