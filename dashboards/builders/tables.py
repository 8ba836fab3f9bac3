"""A table whose rows are joined from several queries with the same labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from string import ascii_uppercase

from builders.leading import cell_link
from builders.names import Json
from builders.panel import Scale, Words, panel, thresholds, unknown
from builders.query import Query


@dataclass(frozen=True)
class Column:
    """One value in each row."""

    name: str
    expr: str
    scale: Scale


@dataclass(frozen=True)
class Hidden(Column):
    """A value that is there for its labels alone: an info metric's 1."""


def table(words: Words, labels: Sequence[str], columns: Sequence[Column], sort: str) -> Json:
    """Labels first, in this order, then the columns. `sort` decides the order: a column with the
    largest first, a label by the alphabet. A cell without a value says that it has none."""
    queries = [Query(one.expr, is_instant=True, is_table=True) for one in columns]
    options = {
        "cellHeight": "sm",
        "frameIndex": 0,
        "showHeader": True,
        "sortBy": [{"desc": sort not in labels, "displayName": sort}],
    }
    custom = {"align": "auto", "cellOptions": {"type": "auto"}, "inspect": False}
    made = panel("table", words, queries, Scale("none"), options, custom)
    made["fieldConfig"]["defaults"]["links"] = [cell_link(words.to, words.by)]
    made["fieldConfig"]["overrides"] = [_override(one) for one in columns if one.scale.unit]
    made["transformations"] = [
        {"id": "merge", "options": {}},
        {"id": "organize", "options": _organised(labels, columns)},
    ]
    return made


def _organised(labels: Sequence[str], columns: Sequence[Column]) -> Json:
    fields = _fields(columns)
    shown = [field for field, one in zip(fields, columns, strict=True) if not _hides(one)]
    hidden = [field for field, one in zip(fields, columns, strict=True) if _hides(one)]
    return {
        "excludeByName": dict.fromkeys(["Time", *hidden], True),
        "indexByName": {name: index for index, name in enumerate([*labels, *shown])},
        "renameByName": {f: c.name for f, c in zip(fields, columns, strict=True) if f in shown},
    }


def _fields(columns: Sequence[Column]) -> list[str]:
    """As the data source calls them: by the query's letter, unless there is one query only."""
    if len(columns) == 1:
        return ["Value"]
    return [f"Value #{letter}" for letter in ascii_uppercase[: len(columns)]]


def _hides(column: Column) -> bool:
    return isinstance(column, Hidden)


def _override(column: Column) -> Json:
    scale = column.scale
    properties: list[Json] = [
        {"id": "unit", "value": scale.unit},
        {"id": "mappings", "value": [*scale.words, unknown()]},
    ]
    if scale.decimals is not None:
        properties.append({"id": "decimals", "value": scale.decimals})
    if scale.steps:
        properties += [
            {"id": "thresholds", "value": thresholds(scale.steps)},
            {"id": "color", "value": {"mode": "thresholds"}},
        ]
    if scale.steps or scale.words:
        cell = {"type": "color-background", "mode": "basic"}
        properties.append({"id": "custom.cellOptions", "value": cell})
    return {"matcher": {"id": "byName", "options": column.name}, "properties": properties}
