"""The wall clock: whether it is kept by a time source, how far off it is, whether it was set."""

from __future__ import annotations

import ctypes
import struct
import time

from holdfast_sidecar.readings.host import Clock

UNSYNCHRONISED = 5
"""TIME_ERROR of adjtimex(2)."""

NANOSECONDS = 0x2000
"""STA_NANO: the offset is in nanoseconds rather than microseconds."""

_TIMEX = struct.Struct("@Iqqqqi")
"""The beginning of struct timex: modes, offset, freq, maxerror, esterror, status."""

_ROOM_BYTES = 512
"""For struct timex, which has 208 bytes on 64-bit Linux."""


def read_clock() -> Clock | None:
    """What the kernel says; with no mode set adjtimex(2) only reads. None where it won't."""
    timex = ctypes.create_string_buffer(_ROOM_BYTES)
    try:
        state = int(ctypes.CDLL(None).adjtimex(timex))
    except (AttributeError, OSError):
        return None
    return None if state < 0 else parse_timex(state, timex.raw)


def parse_timex(state: int, timex: bytes) -> Clock:
    """Parse what adjtimex(2) answered and filled in."""
    _, offset, _, most_error, _, status = _TIMEX.unpack_from(timex)
    unit = 1e-9 if status & NANOSECONDS else 1e-6
    return Clock(state != UNSYNCHRONISED, offset * unit, most_error * 1e-6)


def read_apart_s() -> float:
    """Wall clock less the time since boot, sleep included."""
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
