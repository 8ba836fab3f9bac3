"""One setting's value, from a file or from text: type, unit and sign. Knows no setting by name."""

from __future__ import annotations

import math
import re

Value = str | int | float | bool

_NUMBER_AND_UNIT = re.compile(r"\s*([0-9][0-9_]*(?:\.[0-9]*)?|\.[0-9]+)\s*([A-Za-z]*)\s*")
_SECONDS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_BYTES = {
    "": 1,
    "b": 1,
    "k": 2**10,
    "kib": 2**10,
    "kb": 10**3,
    "m": 2**20,
    "mib": 2**20,
    "mb": 10**6,
    "g": 2**30,
    "gib": 2**30,
    "gb": 10**9,
}
_SIZES = ("_bytes", "_bytes_per_s")
_BOOLEANS = {"1": True, "true": True, "yes": True, "on": True}
_BOOLEANS |= {"0": False, "false": False, "no": False, "off": False}


def parse_duration(text: str) -> float:
    """Seconds of `90`, `90s`, `500ms`, `5m`, `2h` or `1d`; ValueError says what is expected."""
    number, unit = _number_and_unit(text)
    if unit not in _SECONDS:
        raise ValueError("a duration is written 90, 90s, 500ms, 5m, 2h or 1d")
    return number * _SECONDS[unit]


def parse_size(text: str) -> int:
    """Bytes of `65536`, `64k`, `64MiB` or `2G`; ValueError says what is expected."""
    number, unit = _number_and_unit(text)
    if unit not in _BYTES:
        raise ValueError("a size is written 65536, 64k, 64MiB or 2G")
    return int(number * _BYTES[unit])


def read_value(name: str, kind: type, value: object) -> Value:
    """The value of setting `name`, converted to `kind`; ValueError says what is expected.

    The unit is in the name: `…_s` may be written as a duration, `…_bytes` (or `…_bytes_per_s`) as
    a size. Neither may be negative, nor a price (`…_hour`).
    """
    if isinstance(value, (dict, list)) or value is None:
        raise ValueError(f"expected {_expected(name, kind)}")
    if kind is str:
        return _text(value)
    if kind is bool:
        return _boolean(value)
    number = _number(name, kind, value)
    if name.endswith(("_s", "_bytes", "_hour")) and number < 0:
        raise ValueError("it must not be negative")
    return number


def write_value(value: Value) -> str:
    """The value as text that `read_value` reads back."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _number(name: str, kind: type, value: object) -> int | float:
    if isinstance(value, bool):
        raise ValueError(f"expected {_expected(name, kind)}")
    if isinstance(value, str):
        value = _number_from_text(name, kind, value.strip())
    if not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ValueError(f"expected {_expected(name, kind)}")
    if kind is int and value != int(value):
        raise ValueError("expected a whole number")
    return int(value) if kind is int else float(value)


def _number_from_text(name: str, kind: type, text: str) -> float:
    try:
        return int(text) if kind is int else float(text)
    except ValueError:
        if name.endswith(_SIZES):
            return parse_size(text)
        if name.endswith("_s"):
            return parse_duration(text)
        raise ValueError(f"expected {_expected(name, kind)}") from None


def _number_and_unit(text: str) -> tuple[float, str]:
    match = _NUMBER_AND_UNIT.fullmatch(text)
    if match is None:
        return 0.0, "?"
    return float(match[1]), match[2].lower()


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("expected text in quotes")
    return value


def _boolean(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in _BOOLEANS:
        return _BOOLEANS[value.strip().lower()]
    raise ValueError("expected true or false")


def _expected(name: str, kind: type) -> str:
    if name.endswith(_SIZES):
        return "a size such as 65536, 64MiB or 2G"
    if name.endswith("_s"):
        return "a duration such as 90, 90s, 5m or 2h"
    return {str: "text", bool: "true or false", int: "a whole number"}.get(kind, "a number")
