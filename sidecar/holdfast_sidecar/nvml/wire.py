"""What goes through the pipe between sidecar and children: readings as JSON, the rest as words.

Nothing is unpickled, and whatever is not as it should be is refused, or left out where it is one
number of many.
"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast_sidecar.nvml import mouth
from holdfast_sidecar.nvml.spelling import parse_changes, parse_reading
from holdfast_sidecar.readings.gpu import GpuReading
from holdfast_sidecar.readings.gpu_events import UNKNOWN_XID, DriverEvent
from holdfast_sidecar.xids.event import FROM_NVML, XidEvent, is_number


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


def parse_message(content: bytes, before: GpuReading | None = None) -> Message:
    """What a frame says; `before` is what this child read before. Raises BadMessageError."""
    word, _, rest = content.decode(errors="replace").partition(" ")
    try:
        return _parse(word, rest, before)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise BadMessageError(f"{word[:20]!r}: {type(error).__name__}: {error}") from None


def _parse(word: str, rest: str, before: GpuReading | None) -> Message:
    if word == mouth.READING:
        return parse_reading(rest)
    if word == mouth.CHANGES:
        return parse_changes(rest, before)
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
    if kind == "xid" and not is_number(int(data)):
        return DriverEvent(float(at), UNKNOWN_XID, pci, int(data))
    if kind == "xid":
        return XidEvent(float(at), FROM_NVML, int(data), pci, text="")
    return DriverEvent(float(at), kind, pci, int(data))
