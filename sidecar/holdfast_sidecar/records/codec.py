"""Records as JSON and back, as they stand in the store: written compactly, read forgivingly."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable
from enum import Enum
from functools import cache
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from holdfast_sidecar.records.findings import Finding
from holdfast_sidecar.records.steps import Slowness

T = TypeVar("T")


_ENCODER = json.JSONEncoder(separators=(",", ":"), sort_keys=True, default=vars, allow_nan=False)
"""A record by its fields, as they stand: `asdict` would first copy all of it, five times the cost
of writing it, at every heartbeat."""


def encode(record: Any) -> str:
    """A record as compact JSON."""
    return _ENCODER.encode(record)


INCARNATION = re.compile(r'"incarnation":"([^"]*)"')
"""Of a report, as the store's scripts find it too: inside a string its quotes are escaped."""


def incarnation_in(text: str) -> str | None:
    """Which launcher or sidecar this report is of; None when it does not say."""
    found = INCARNATION.search(text)
    return None if found is None else found.group(1)


def decode(kind: type[T], text: str) -> T | None:
    """A record from JSON; None when it is not one. Unknown fields are left out (newer writers).

    Remembered, because most have not changed since the last reading: a record is not to be altered.
    """
    key = (kind, _slot(kind, text))
    known = _REMEMBERED.find(key, text)
    if known is None:
        known = text, _decode(cast("Any", kind), text)
        _REMEMBERED.keep(key, known)
    return cast("T | None", known[1])


def _slot(kind: Any, text: str) -> str:
    """Of a report its writer: each has one, and with the next heartbeat the text is another."""
    return (_is_report(kind) and incarnation_in(text)) or text


@cache
def _is_report(kind: Any) -> bool:
    return "incarnation" in getattr(kind, "__dataclass_fields__", ())


MOST_CHARACTERS = 16 * 2**20
"""Of the texts that are remembered: all reports of a thousand nodes, which take some 12 KB each."""

MOST_RECORDS = 8192
"""An agent's and a sidecar's report of twice as many nodes as one Redis has connections for."""

WALKS = 8
"""Whoever was not asked for while all others were so often is gone, or its text was replaced."""

FEWEST_LOOKUPS = 64

Key = tuple[Any, str]
Known = tuple[str, Any]


class DecodeCache:
    """Texts with the values read from them, one text for each key.

    Readings walk all reports in turn, again and again. So nothing makes room for a newcomer but
    what nobody asks for any more: of a walk that is too long for this, a part is remembered, where
    dropping what was asked for longest ago would always drop what is asked for next. Threads that
    meet here lose a value at the worst, which is read again.
    """

    def __init__(
        self, most_characters: int = MOST_CHARACTERS, most_records: int = MOST_RECORDS
    ) -> None:
        self._most_characters = most_characters
        self._most_records = most_records
        self._young: dict[Key, Known] = {}
        self._old: dict[Key, Known] = {}
        self._lookups = 0
        self.characters = 0
        """Of all texts that are remembered."""

    def find(self, key: Key, text: str) -> Known | None:
        """This text and its value; None: it is not remembered, but perhaps another one."""
        self._lookups += 1
        if self._lookups > WALKS * self._count() + FEWEST_LOOKUPS:
            self._forget()
        if (known := self._young.get(key)) is None and (known := self._old.pop(key, None)):
            self._young[key] = known
        return known if known is not None and known[0] == text else None

    def keep(self, key: Key, known: Known) -> None:
        """Remember a text in place of the one that this key had, if there is room."""
        if (before := self._young.pop(key, None)) is not None:
            self.characters -= len(before[0])
        more = self.characters + len(known[0])
        if self._count() < self._most_records and more <= self._most_characters:
            self._young[key], self.characters = known, more

    def _count(self) -> int:
        return len(self._young) + len(self._old)

    def _forget(self) -> None:
        self._old, self._young, self._lookups = self._young, {}, 0
        self.characters = sum(len(text) for text, _ in self._old.copy().values())


_REMEMBERED = DecodeCache()


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
