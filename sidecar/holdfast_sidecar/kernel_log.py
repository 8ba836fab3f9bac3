"""The kernel's log, /dev/kmsg: opened, read without waiting, taken apart.

Who reads it when is the readers' affair: one follows it, one looks when a rank has died, one copies
what is there.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

from holdfast_sidecar.readings.kernel import KernelRecord

KMSG = Path("/dev/kmsg")

LEVELS = ("emergency", "alert", "critical", "error", "warning", "notice", "info", "debug")

RECORD_BYTES = 8192
"""The kernel hands out whole records only, and says EINVAL where one does not fit."""


def open_log(path: Path = KMSG) -> int:
    """A descriptor at the oldest record, which never waits. Raises OSError."""
    return os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)


def read_chunks(descriptor: int) -> Iterator[bytes | None]:
    """What is there now, a record at a time; None where some were overwritten before they were
    read, and the next one comes. Only a file in the log's place has an end, which is an empty
    chunk. Raises OSError."""
    chunk: bytes | None = None
    while chunk != b"":
        try:
            chunk = os.read(descriptor, RECORD_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            if error.errno != errno.EPIPE:
                raise
            chunk = None
        yield chunk


def parse_records(chunk: bytes) -> Iterator[KernelRecord]:
    """Whole records; what describes their devices (lines that begin with a space) is left out."""
    for line in chunk.decode(errors="replace").split("\n"):
        record = None if line.startswith(" ") else parse_record(line)
        if record is not None:
            yield record


def parse_record(line: str) -> KernelRecord | None:
    """The first line of a record; None for garbage."""
    prefix, found, text = line.partition(";")
    fields = prefix.split(",")
    if not found or len(fields) < 3 or not _are_numbers(fields[:3]):
        return None
    level, sequence, at_us = (int(field) for field in fields[:3])
    return KernelRecord(sequence, level % len(LEVELS), at_us / 1e6, text)


def _are_numbers(fields: list[str]) -> bool:
    return all(field.isascii() and field.isdecimal() for field in fields)
