"""Records as JSON and back, as they stand in the store: written compactly, read forgivingly."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from enum import Enum
from functools import cache, lru_cache
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from holdfast_sidecar.findings import Finding
from holdfast_sidecar.records.slowness import Slowness

T = TypeVar("T")


_ENCODER = json.JSONEncoder(separators=(",", ":"), sort_keys=True, default=vars, allow_nan=False)
"""A record by its fields, as they stand: `asdict` would first copy all of it, five times the cost
of writing it, at every heartbeat."""


def encode(record: Any) -> str:
    """A record as compact JSON."""
    return _ENCODER.encode(record)


def decode(kind: type[T], text: str) -> T | None:
    """A record from JSON; None when it is not one. Unknown fields are left out (newer writers).

    Remembered by text, because most fields have not changed since the last reading: a record is
    not to be altered.
    """
    return cast("T | None", _decode(cast("Any", kind), text))


@lru_cache(maxsize=512)
def _decode(kind: Any, text: str) -> Any:
    try:
        return _reader(kind)(json.loads(text))
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


@cache
def _reader(kind: Any) -> Callable[[Any], Any]:
    """A function that builds a value of this type from plain JSON; made once per type."""
    if get_origin(kind) is Union or type(kind).__name__ == "UnionType":
        inner = _reader(next(arg for arg in get_args(kind) if arg is not type(None)))
        return lambda value: None if value is None else inner(value)
    if get_origin(kind) is list:
        item = _reader(get_args(kind)[0])
        if get_args(kind)[0] in (Finding, Slowness):
            return lambda value: [one for each in value if (one := _known(item, each)) is not None]
        return lambda value: [item(each) for each in value]
    if get_origin(kind) is dict:
        item = _reader(get_args(kind)[1])
        return lambda value: {key: item(each) for key, each in value.items()}
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind
    if dataclasses.is_dataclass(kind):
        return _record_reader(kind)
    return lambda value: value


def _known(read: Callable[[Any], Any], value: Any) -> Any:
    """A finding, or who is slow; None of a kind, cause or remedy that only newer sidecars know: the
    rest of what their nodes say, that they live above all, is understood."""
    try:
        return read(value)
    except ValueError:
        return None


def _record_reader(kind: Any) -> Callable[[Any], Any]:
    hints = get_type_hints(kind)
    readers = {f.name: _reader(hints[f.name]) for f in dataclasses.fields(kind)}
    return lambda value: kind(
        **{name: read(value[name]) for name, read in readers.items() if name in value}
    )
