"""What goes through the pipe between sidecar and children: readings as JSON, the rest as words.

Nothing is unpickled, and whatever is not as it should be is refused, or left out where it is one
number of many.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from holdfast_sidecar.nvml import mouth
from holdfast_sidecar.readings.gpu import Gpu, GpuReading, GpuUser, Signal
from holdfast_sidecar.readings.gpu_events import DriverEvent
from holdfast_sidecar.xids.event import FROM_NVML, XidEvent


class BadMessageError(Exception):
    """What a child said makes no sense."""


@dataclass(frozen=True)
class Listening:
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


Message = GpuReading | XidEvent | DriverEvent | Listening | Absent | Failed

_SIGNALS: Mapping[str, Signal] = {signal.value: signal for signal in Signal}


def spell_reading(reading: GpuReading) -> str:
    """The reading as JSON."""
    return json.dumps(reading, default=vars, separators=(",", ":"))


def parse_message(content: bytes) -> Message:
    """What a frame says. Raises BadMessageError."""
    word, _, rest = content.decode(errors="replace").partition(" ")
    try:
        return _parse(word, rest)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise BadMessageError(f"{word[:20]!r}: {type(error).__name__}: {error}") from None


def _parse(word: str, rest: str) -> Message:
    if word == mouth.READING:
        return parse_reading(rest)
    if word == mouth.EVENT:
        return parse_event(rest)
    if word == mouth.LISTENING:
        count, _, trouble = rest.partition(" ")
        return Listening(int(count), trouble)
    if word == mouth.ABSENT:
        return Absent(rest)
    if word == mouth.FAILED:
        return Failed(rest)
    raise ValueError("no such word")


def parse_event(text: str) -> XidEvent | DriverEvent:
    """An event of the driver's. Raises ValueError."""
    at, kind, data, address = text.split(" ")
    pci = "" if address == "-" else address
    if kind == "xid":
        return XidEvent(float(at), FROM_NVML, int(data), pci, text="")
    return DriverEvent(float(at), kind, pci, int(data))


def parse_reading(text: str) -> GpuReading:
    """All GPUs. Raises KeyError, TypeError or ValueError; a number that is none is left out."""
    # NaN and Infinity, which JSON does not know and Python writes, are no numbers either.
    told = json.loads(text, parse_constant=lambda _: None)
    return GpuReading(
        is_present=_truth(told["is_present"]),
        driver=str(told["driver"]),
        gpus=tuple(_parse_gpu(gpu) for gpu in told["gpus"]),
        expected=None if told["expected"] is None else int(told["expected"]),
        read_at_s=float(told["read_at_s"]),
        took_s=float(told["took_s"]),
    )


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
