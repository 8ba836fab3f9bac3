"""The kernel's own log of late, where it may be read; reading apart from parsing."""

from __future__ import annotations

import errno
import os
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from holdfast_sidecar.readings.kernel import KernelRecord

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
    parsed = parse_kernel_record(record)
    if parsed is None or parsed.at_s < since_s:
        return ""
    return f"[{parsed.at_s:.6f}] {_LEVELS[parsed.level]}: {parsed.text}"


def parse_kernel_record(record: str) -> KernelRecord | None:
    """What /dev/kmsg hands out at once, without what describes its device; None for garbage."""
    prefix, found, text = record.partition(";")
    fields = prefix.split(",")
    if not found or len(fields) < 3 or not _are_numbers(fields[:3]):
        return None
    level, sequence, at_us = (int(field) for field in fields[:3])
    return KernelRecord(sequence, level % len(_LEVELS), at_us / 1e6, text.partition("\n")[0])


def _are_numbers(fields: list[str]) -> bool:
    return all(field.isascii() and field.isdecimal() for field in fields)


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
