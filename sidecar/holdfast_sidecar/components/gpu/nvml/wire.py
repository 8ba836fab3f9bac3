"""What goes through the pipe between sidecar and children: readings as JSON, the rest as words.

Nothing is unpickled, and whatever is not as it should be is refused, or left out where it is one
number of many.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

from holdfast_sidecar.components.gpu.nvml import child_io
from holdfast_sidecar.components.gpu.readings import Gpu, GpuReading, GpuUser, Signal
from holdfast_sidecar.components.xid.events import (
    FROM_NVML,
    UNKNOWN_XID,
    DriverEvent,
    XidEvent,
    is_number,
)

# Readings as JSON: a child's first one whole, each later one by what has changed in it.
#
# Of sixty values of a GPU some ten differ from one second to the next; to write out and read the
# others again cost more than to ask the driver. Pipe and checksum lose nothing in between.

_SIGNALS: Mapping[str, Signal] = {signal.value: signal for signal in Signal}

_AROUND = attrgetter("is_present", "driver", "expected")
"""Of a reading: what hardly ever changes. Where it does the whole reading is told."""

_BESIDE = attrgetter(
    *("index", "uuid", "model", "pci", "refused", "users", "lost"),
    *("is_mig", "mig_uuids", "is_ecc_on", "is_persistent"),
)
"""Of a GPU: all but its values. Where it changes the whole GPU is told."""


class Speller:
    """The child's end: knows what it has told."""

    def __init__(self) -> None:
        self._told: GpuReading | None = None

    def spell(self, reading: GpuReading) -> tuple[str, str]:
        """Word and content."""
        before, self._told = self._told, reading
        if before is None or not _is_alike(before, reading):
            return child_io.READING, spell_reading(reading)
        return child_io.CHANGES, spell_changes(before, reading)


def spell_reading(reading: GpuReading) -> str:
    """The whole reading."""
    return _spell(reading)


def spell_changes(before: GpuReading, reading: GpuReading) -> str:
    """What is new in it: of each GPU nothing, the values that differ, or all of it."""
    pairs = zip(before.gpus, reading.gpus, strict=True)
    return _spell(
        {
            "gpus": [_changes(old, new) for old, new in pairs],
            "read_at_s": reading.read_at_s,
            "took_s": reading.took_s,
        }
    )


def parse_reading(text: str) -> GpuReading:
    """All GPUs. Raises KeyError, TypeError or ValueError; a number that is none is left out."""
    told = _parse_json(text)
    return GpuReading(
        is_present=_truth(told["is_present"]),
        driver=str(told["driver"]),
        gpus=tuple(_parse_gpu(gpu) for gpu in told["gpus"]),
        expected=None if told["expected"] is None else int(told["expected"]),
        read_at_s=float(told["read_at_s"]),
        took_s=float(told["took_s"]),
    )


def parse_changes(text: str, before: GpuReading | None) -> GpuReading:
    """The reading that `before` has become; what did not change is the same object. Raises as
    `parse_reading` does, also where there was none before, or one of another number of GPUs."""
    if before is None:
        raise ValueError("changes of nothing")
    told = _parse_json(text)
    pairs = zip(before.gpus, told["gpus"], strict=True)
    return GpuReading(
        is_present=before.is_present,
        driver=before.driver,
        gpus=tuple(_changed(gpu, changes) for gpu, changes in pairs),
        expected=before.expected,
        read_at_s=float(told["read_at_s"]),
        took_s=float(told["took_s"]),
    )


def _is_alike(before: GpuReading, after: GpuReading) -> bool:
    return _AROUND(before) == _AROUND(after) and len(before.gpus) == len(after.gpus)


def _changes(before: Gpu, after: Gpu) -> Gpu | dict[str, dict[str, float | None]]:
    if _BESIDE(before) != _BESIDE(after):
        return after
    old, new = before.values, after.values
    if old == new:
        return {}
    values: dict[str, float | None] = {s: v for s, v in new.items() if old.get(s) != v}
    return {"values": values | dict.fromkeys(old.keys() - new.keys())}


def _changed(gpu: Gpu, changes: Mapping[str, Any]) -> Gpu:
    if not changes:
        return gpu
    if "uuid" in changes:
        return _parse_gpu(changes)
    values = dict(gpu.values)
    for name, value in changes["values"].items():
        if (signal := _SIGNALS.get(name)) is None:
            continue
        if _is_number(value):
            values[signal] = value
        else:
            values.pop(signal, None)
    return replace(gpu, values=values)


def _spell(told: object) -> str:
    return json.dumps(told, default=vars, separators=(",", ":"))


def _parse_json(text: str) -> Any:
    # NaN and Infinity, which JSON does not know and Python writes, are no numbers either.
    return json.loads(text, parse_constant=lambda _: None)


def _parse_gpu(told: Mapping[str, Any]) -> Gpu:
    users = told["users"]
    return Gpu(
        index=int(told["index"]),
        uuid=str(told["uuid"]),
        model=str(told["model"]),
        pci=str(told["pci"]),
        values={
            signal: value
            for name, value in told["values"].items()
            if (signal := _SIGNALS.get(name)) is not None and _is_number(value)
        },
        refused={str(name): str(why) for name, why in told["refused"].items()},
        users=None if users is None else tuple(_parse_user(user) for user in users),
        lost=str(told["lost"]),
        is_mig=_truth(told["is_mig"]),
        mig_uuids=tuple(str(uuid) for uuid in told["mig_uuids"]),
        is_ecc_on=None if told["is_ecc_on"] is None else _truth(told["is_ecc_on"]),
        is_persistent=None if told["is_persistent"] is None else _truth(told["is_persistent"]),
    )


def _parse_user(told: Mapping[str, Any]) -> GpuUser:
    memory = told["memory_bytes"]
    return GpuUser(int(told["pid"]), None if memory is None else int(memory))


def _is_number(value: object) -> bool:
    return type(value) in (int, float) and math.isfinite(value)  # type: ignore[arg-type]


def _truth(value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{value!r} is neither true nor false")
    return value


class BadMessageError(Exception):
    """What a child said makes no sense."""


@dataclass(frozen=True)
class EventsReady:
    """The child waits for the events of so many GPUs."""

    count: int
    trouble: str
    """Why not for those of all, or why a wait failed."""


@dataclass(frozen=True)
class Absent:
    """There is no driver."""

    why: str


@dataclass(frozen=True)
class Failed:
    """The driver as a whole answers with an error, or the child itself went wrong."""

    why: str


Message = GpuReading | XidEvent | DriverEvent | EventsReady | Absent | Failed


def parse_message(content: bytes, before: GpuReading | None = None) -> Message:
    """What a frame says; `before` is what this child read before. Raises BadMessageError."""
    word, _, rest = content.decode(errors="replace").partition(" ")
    try:
        return _parse(word, rest, before)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise BadMessageError(f"{word[:20]!r}: {type(error).__name__}: {error}") from None


def _parse(word: str, rest: str, before: GpuReading | None) -> Message:
    if word == child_io.READING:
        return parse_reading(rest)
    if word == child_io.CHANGES:
        return parse_changes(rest, before)
    if word == child_io.EVENT:
        return parse_event(rest)
    if word == child_io.LISTENING:
        count, _, trouble = rest.partition(" ")
        return EventsReady(int(count), trouble)
    if word == child_io.ABSENT:
        return Absent(rest)
    if word == child_io.FAILED:
        return Failed(rest)
    raise ValueError("no such word")


def parse_event(text: str) -> XidEvent | DriverEvent:
    """An event of the driver's. Raises ValueError."""
    at, kind, data, address = text.split(" ")
    pci = "" if address == "-" else address
    if kind == "xid" and not is_number(int(data)):
        return DriverEvent(float(at), UNKNOWN_XID, pci, int(data))
    if kind == "xid":
        return XidEvent(float(at), FROM_NVML, int(data), pci, text="")
    return DriverEvent(float(at), kind, pci, int(data))
