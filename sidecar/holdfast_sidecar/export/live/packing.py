"""A view as plain JSON values and back; what can't be read is left at its default.

A list of records becomes a table, its names once, then a row each: a thousand ranks are told in a
third of the bytes.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from holdfast_sidecar.export.live.view import (
    COLUMNS,
    RATIOS,
    Heat,
    LiveView,
    levels_of,
    parse,
    spell,
)

T = TypeVar("T")

OF, ROWS = "of", "rows"
"""Of a table: its names, and a list of values for each record."""

DIGITS = 10
"""Of a rank's number, fewer than that."""

LARGEST = 1e300
"""A number that JSON can say may be larger than any float."""

_UNREADABLE = object()
"""In place of a value that is of another kind than its field."""


def to_plain(value: Any) -> Any:
    """The view, or any part of it, as JSON's values."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {one.name: to_plain(getattr(value, one.name)) for one in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(key): to_plain(one) for key, one in value.items()}
    if isinstance(value, list):
        if value and dataclasses.is_dataclass(value[0]):
            return _table(value)
        return [to_plain(one) for one in value]
    if isinstance(value, float):
        return _short(value) if math.isfinite(value) else None
    return value


def from_plain(told: Any) -> LiveView | None:
    """The view that somebody told; None when it is none at all."""
    if not isinstance(told, dict) or "version" not in told:
        return None
    read = _reader(LiveView)(told)
    return read if isinstance(read, LiveView) else None


def _short(number: float) -> float:
    """Six digits of a measure, milliseconds of a time: what more there is nobody sees."""
    return round(number, 3) if abs(number) >= 1e6 else float(f"{number:.6g}")


def _table(records: list[Any]) -> dict[str, Any]:
    names = [one.name for one in dataclasses.fields(records[0])]
    return {OF: names, ROWS: [[to_plain(getattr(one, n)) for n in names] for one in records]}


@cache
def _reader(kind: Any) -> Callable[[Any], Any]:
    """What makes a value of this type of a plain one, or _UNREADABLE."""
    if dataclasses.is_dataclass(kind):
        return _record_reader(kind)
    arguments = get_args(kind)
    if type(None) in arguments:
        return _optional_reader(_reader(next(one for one in arguments if one is not type(None))))
    if get_origin(kind) is list:
        return _list_reader(_reader(arguments[0]))
    if get_origin(kind) is dict:
        return _dict_reader(arguments[0], _reader(arguments[1]))
    return _leaf_reader(kind)


def _leaf_reader(kind: Any) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if kind is float and type(value) in (int, float) and -LARGEST < value < LARGEST:
            return float(value)
        return value if type(value) is kind and kind is not float else _UNREADABLE

    return read


def _optional_reader(inner: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        known = None if value is None else inner(value)
        return None if known is _UNREADABLE else known

    return read


def _list_reader(item: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if isinstance(value, dict):
            names, rows = value.get(OF), value.get(ROWS)
            if not isinstance(names, list) or not isinstance(rows, list):
                return _UNREADABLE
            value = [dict(zip(names, row, strict=False)) for row in rows if isinstance(row, list)]
        if not isinstance(value, list):
            return _UNREADABLE
        return [one for each in value if (one := item(each)) is not _UNREADABLE]

    return read


def _dict_reader(key: Any, item: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if not isinstance(value, dict):
            return _UNREADABLE
        told = {name: item(each) for name, each in value.items()}
        kept = {name: one for name, one in told.items() if one is not _UNREADABLE}
        if key is str:
            return kept
        return {int(name): one for name, one in kept.items() if _is_number(name)}

    return read


def _is_number(name: str) -> bool:
    return name.isdecimal() and len(name) < DIGITS


def _record_reader(kind: Any) -> Callable[[Any], Any]:
    hints = get_type_hints(kind)
    readers = {one.name: _reader(hints[one.name]) for one in dataclasses.fields(kind)}

    def read(value: Any) -> Any:
        if not isinstance(value, dict):
            return _UNREADABLE
        told = {n: reader(value[n]) for n, reader in readers.items() if n in value}
        return kind(**{name: one for name, one in told.items() if one is not _UNREADABLE})

    return read


# A view as the bytes of `/live.json` and back. The map's cells are a character each.

_ENCODER = json.JSONEncoder(separators=(",", ":"), allow_nan=False)


def pack(view: LiveView) -> bytes:
    """The view as JSON."""
    told = to_plain(dataclasses.replace(view, heat=Heat()))
    return _ENCODER.encode({**told, "heat": _pack_heat(view.heat)}).encode()


def unpack(told: bytes) -> LiveView | None:
    """The view that somebody packed; None when it is none at all."""
    try:
        plain = json.loads(told)
    except (ValueError, RecursionError):
        return None
    if isinstance(plain, dict) and isinstance(plain.get("heat"), dict):
        plain["heat"] = _unpack_heat(plain["heat"])
    return from_plain(plain)


def _pack_heat(heat: Heat) -> dict[str, Any]:
    bare = to_plain(dataclasses.replace(heat, rows={}, phases={}))
    rows = {str(rank): spell(levels_of(row)) for rank, row in heat.rows.items()}
    phases = {
        str(rank): spell(0 if phase is None else phase + 1 for phase in row)
        for rank, row in heat.phases.items()
    }
    return {**bare, "rows": rows, "phases": phases}


def _unpack_heat(told: dict[str, Any]) -> dict[str, Any]:
    return {
        **told,
        "rows": {rank: [RATIOS[one] for one in row] for rank, row in _texts(told.get("rows"))},
        "phases": {
            rank: [one - 1 if one else None for one in row]
            for rank, row in _texts(told.get("phases"))
        },
    }


def _texts(told: Any) -> list[tuple[str, list[int]]]:
    """The rows that are texts, each no longer than the map is wide."""
    rows = told.items() if isinstance(told, dict) else ()
    return [(rank, parse(row[:COLUMNS])) for rank, row in rows if isinstance(row, str)]
