"""What of a dashboard is not in Grafana as it was written, line by line. Pure.

Only what we wrote counts: Grafana adds defaults of its own, and brings an older schema up to its
own on reading, which would look like a change each time.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

OWN_OF_GRAFANA = frozenset({"id", "version", "schemaVersion"})
"""It numbers and dates what it keeps."""

LONGEST_VALUE = 90


def differences(wanted: Any, there: Any, path: str = "") -> Iterator[str]:
    """`+ what is missing`, `~ what is otherwise: there → wanted`."""
    if isinstance(wanted, dict) and isinstance(there, dict):
        yield from _of_objects(wanted, there, path)
    elif isinstance(wanted, list) and isinstance(there, list) and len(wanted) == len(there):
        for index, (one, other) in enumerate(zip(wanted, there, strict=True)):
            yield from differences(one, other, f"{path}[{_name(one, index)}]")
    elif isinstance(wanted, list) and isinstance(there, list):
        yield from _of_lists(wanted, there, path)
    elif wanted != there:
        yield f"~ {path}: {_short(there)} → {_short(wanted)}"


def _of_objects(wanted: dict[str, Any], there: dict[str, Any], path: str) -> Iterator[str]:
    for name, value in sorted(wanted.items()):
        if not path and name in OWN_OF_GRAFANA:
            continue
        inner = f"{path}.{name}" if path else name
        if name in there:
            yield from differences(value, there[name], inner)
        elif value not in (None, "", [], {}):  # what is empty may be left out
            yield f"+ {inner}: {_short(value)}"


def _of_lists(wanted: list[Any], there: list[Any], path: str) -> Iterator[str]:
    """Of another length: what has come and gone, by name where it has one."""
    names = {_name(one, index): one for index, one in enumerate(wanted)}
    known = {_name(one, index): one for index, one in enumerate(there)}
    yield f"~ {path}: {len(there)} → {len(wanted)} of them"
    for name, one in names.items():
        if name in known:
            yield from differences(one, known[name], f"{path}[{name}]")
        else:
            yield f"+ {path}[{name}]"
    yield from (f"- {path}[{name}]" for name in known if name not in names)


def _name(value: Any, index: int) -> str:
    """A panel by its title, a variable by its name, a query by its letter."""
    if isinstance(value, dict):
        for key in ("title", "name", "refId"):
            if isinstance(value.get(key), str) and value[key]:
                return str(value[key])
    return str(index)


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, sort_keys=True)
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}…"
