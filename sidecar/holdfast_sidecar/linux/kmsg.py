"""The kernel's log, /dev/kmsg: opened, read without waiting, taken apart.

Who reads it when is the readers' affair: one follows it, one looks when a rank has died, one copies
what is there.
"""

from __future__ import annotations

import errno
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from holdfast_sidecar.linux.threads import NONE_LEFT, start_thread

# What the kernel logged since the tick before.


@dataclass(frozen=True)
class KernelRecord:
    """One record of the kernel's log."""

    sequence: int
    """The kernel's own number; counts up, and begins again with each boot."""
    level: int
    """0 (emergency) to 7 (debug)."""
    at_s: float
    """The kernel's clock: seconds since it started."""
    text: str
    at_unix_s: float = 0.0
    """When it was logged, by this node's wall clock."""
    is_backlog: bool = False
    """It was there before this sidecar began to read."""


@dataclass(frozen=True)
class KernelReading:
    """Records that somebody here understands (`linux.kmsg.WANTED`), oldest first."""

    records: tuple[KernelRecord, ...] = ()
    missed: int = 0
    """Records that were overwritten before they were read, or too many at once; since the start."""


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


# Follows the kernel's log in a thread of its own: the one reader that serves every detector.
#
# It hands on whole records that begin like something somebody here understands; what they mean is
# for whoever understands them. An XID wakes the loop at once.

WANTED = (
    "NVRM: ",
    "nvidia-nvswitch",
    "mlx5_core ",
    "INFO: task ",
    "pcieport ",
    "EDAC ",
    "mce: ",
    "nfs: ",
    "Lustre",
)
"""How the lines begin that some detector reads. All others (a busy log has thousands a minute) cost
a comparison and are dropped here."""

URGENT = ("Xid", "fallen off the bus")
"""Whatever holds one of these wakes the loop; `SXid` does."""

MOST_WAITING = 4096
"""Records between two ticks; more in a second are a storm, and the newest say what it is about."""

REST_S = 0.05
"""After a wake the reader rests so long: a storm of clean-up events wakes the loop twenty times a
second, not a thousand times."""

RETRY_S = 5.0
"""Before a log that ended, or broke, is opened again."""

BACKLOG_S = 0.5
"""The first tick waits so long for the backlog; 1,500 records take 8 ms of CPU. What comes later is
heard later."""

POLL_MS = 1000


class KernelLogBlind(Exception):
    """The kernel's log can't be read here."""


@dataclass
class KernelLog:
    """A probe: `read` hands over what came since the last time. `wake` asks for a tick at once."""

    wake: Callable[[], None]
    path: Path = KMSG
    backlog_s: float = BACKLOG_S
    name: str = "kernel_log"
    _waiting: deque[KernelRecord] = field(default_factory=lambda: deque(maxlen=MOST_WAITING))
    _missed: int = 0
    _blind: str = ""
    _thread: threading.Thread | None = None
    _leaving: threading.Event = field(default_factory=threading.Event)
    _read_once: threading.Event = field(default_factory=threading.Event)
    _newest: int = -1

    def read(self, now_s: float) -> KernelReading:
        """What is new; raises KernelLogBlind where nothing can be read."""
        if self._thread is None:
            self._thread = start_thread(self._follow, self.name)
            if self._thread is None:
                raise KernelLogBlind(NONE_LEFT)
            self._read_once.wait(self.backlog_s)
        records = []
        while self._waiting:
            records.append(self._waiting.popleft())
        if self._blind and not records:
            raise KernelLogBlind(self._blind)
        return KernelReading(tuple(records), self._missed)

    def close(self) -> None:
        """Stop reading."""
        self._leaving.set()

    def _follow(self) -> None:
        while not self._leaving.is_set():
            try:
                descriptor = open_log(self.path)
            except OSError as error:
                self._blind = why_blind(error, self.path)
            else:
                self._blind = ""
                try:
                    self._tail(descriptor)
                finally:
                    os.close(descriptor)
            self._read_once.set()
            self._leaving.wait(RETRY_S)

    def _tail(self, descriptor: int) -> None:
        """Until it ends or breaks. Records known from before it was opened again are left out."""
        poller = select.poll()
        poller.register(descriptor, select.POLLIN)
        is_backlog = self._newest < 0
        while not self._leaving.is_set():
            try:
                is_urgent = self._drain(descriptor, is_backlog)
            except OSError as error:
                self._blind = why_blind(error, self.path)
                return
            except EOFError:
                return
            is_backlog = False
            self._read_once.set()
            if is_urgent:
                self.wake()
                self._leaving.wait(REST_S)
            poller.poll(POLL_MS)

    def _drain(self, descriptor: int, is_backlog: bool) -> bool:
        """Take what is there; whether some of it is urgent. Raises EOFError at a file's end."""
        is_urgent, rest = False, b""
        for chunk in read_chunks(descriptor):
            if self._leaving.is_set():
                break
            if chunk == b"":
                raise EOFError
            if chunk is None:
                self._missed += 1
                continue
            whole, _, rest = (rest + chunk).rpartition(b"\n")
            is_urgent |= self._take(parse_records(whole), is_backlog)
        return is_urgent

    def _take(self, records: Iterable[KernelRecord], is_backlog: bool) -> bool:
        """Keep what is new and wanted; whether some of it is urgent."""
        is_urgent = False
        for record in records:
            if record.sequence <= self._newest:
                continue
            self._newest = record.sequence
            if record.text.startswith(WANTED):
                self._missed += len(self._waiting) == MOST_WAITING
                self._waiting.append(_dated(record, is_backlog))
                is_urgent |= any(sign in record.text for sign in URGENT)
        return is_urgent


def why_blind(error: OSError, path: Path = KMSG) -> str:
    """In one line, with what would mend it."""
    reason = os.strerror(error.errno) if error.errno else str(error)
    mend = {
        errno.EPERM: "CAP_SYSLOG, or `sysctl kernel.dmesg_restrict=0`, allows it",
        errno.EACCES: "it must be readable for this user",
        errno.ENOENT: "it must be mounted into the container",
    }.get(error.errno or 0, "")
    return f"{path}: {reason}" + (f"; {mend}" if mend else "")


def _dated(record: KernelRecord, is_backlog: bool) -> KernelRecord:
    """With wall clock: what just came, came now; the kernel's clock drifts by seconds in weeks."""
    now_unix_s = time.time()
    age_s = max(0.0, time.monotonic() - record.at_s) if is_backlog else 0.0
    return replace(record, at_unix_s=now_unix_s - age_s, is_backlog=is_backlog)
