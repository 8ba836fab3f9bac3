"""The kernel's own log of late, where it may be read; reading apart from parsing."""

from __future__ import annotations

import errno
import os
from collections import deque
from collections.abc import Iterator
from pathlib import Path

KMSG = Path("/dev/kmsg")

RECORD_BYTES = 8192
"""The kernel hands out whole records only, and says EINVAL where one does not fit."""

LINES_KEPT = 2000

_LEVELS = ("emergency", "alert", "critical", "error", "warning", "notice", "info", "debug")


def read_kernel_lines(since_s: float, path: Path = KMSG) -> list[str]:
    """Lines logged since then (seconds of the kernel's clock, which starts at boot), the newest
    `LINES_KEPT` of them. Raises OSError where the log may not be read."""
    lines: deque[str] = deque(maxlen=LINES_KEPT)
    for record in _read_records(path):
        line = parse_record(record, since_s)
        if line:
            lines.append(line)
    return list(lines)


def parse_record(record: str, since_s: float) -> str:
    """`[seconds] level: text` of one record; empty for what is older, or no record."""
    prefix, found, text = record.partition(";")
    fields = prefix.split(",")
    if not found or len(fields) < 3 or not (fields[0] + fields[2]).isdecimal():
        return ""
    at_s = int(fields[2]) / 1e6
    if at_s < since_s:
        return ""
    level = _LEVELS[int(fields[0]) % len(_LEVELS)]
    return f"[{at_s:.6f}] {level}: {text.partition(chr(10))[0]}"


def _read_records(path: Path) -> Iterator[str]:
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        while True:
            try:
                record = os.read(descriptor, RECORD_BYTES)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno == errno.EPIPE:  # overwritten before it was read; the next one comes
                    continue
                raise
            if not record:
                return
            yield record.decode(errors="replace")
    finally:
        os.close(descriptor)
