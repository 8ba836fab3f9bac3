"""Reads sealed slots in the background and leaves their checksum, for whoever loads them later.

Reading goes on without the slot's lock, so that no rank ever finds its slot taken by us: a word
that changed tells that the slot was overwritten meanwhile.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import struct
import threading
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.snapshot_file import HEADER_SIZE, SlotHeader, Word, open_slot_file, parse_header
from holdfast_sidecar.linux.threads import start_thread
from holdfast_sidecar.snapshots.slot_files import SlotFile

log = logging.getLogger(__name__)

CORE_SHARE = 0.05
"""Of one core. A checksum tells memory that went bad between seal and load, which is rare: it is
worth a twentieth of a core beside a training that may want them all, and no more."""

CHUNK_BYTES = 4 << 20
"""Some 3 ms of reading: short against the pauses, long against what a call costs."""

LOOK_S = 1.0
NICENESS = 19

_WORD = struct.Struct("<Q")


@dataclass(frozen=True)
class Pace:
    """How fast slots are read, pauses included, as measured so far."""

    bytes_per_s: float = 0.5e9 * CORE_SHARE
    """zlib's own speed without vector instructions, until it has been measured."""

    def seconds(self, size: int) -> float:
        """How long reading so many bytes will take."""
        return size / self.bytes_per_s


def choose(slots: Sequence[SlotFile], pace: Pace, now_ns: int) -> SlotFile | None:
    """The slot to read next: the newest that has not been read and will be there long enough.

    A slot that has been left alone for as long as reading it takes will be for as long again, more
    likely than not; where ranks turn their slots over faster, nothing is read in vain.
    """
    due = [
        one
        for one in slots
        if one.header.sealed_step is not None
        and one.header.data_crc is None
        and (now_ns - one.header.sealed_ns) / 1e9 >= pace.seconds(one.header.data_size)
    ]
    return max(due, key=lambda one: (one.header.attempt, one.sealed_step), default=None)


def check_slot(path: Path, header: SlotHeader, pause: Callable[[float], None]) -> bool:
    """Read a slot's data and store its checksum; False: it was overwritten meanwhile.

    `pause` is called after each piece with the seconds of CPU time that it took. Raises OSError.
    """
    descriptor = open_slot_file(path, os.O_RDWR)
    try:
        crc = _checksum(descriptor, header, pause)
        return crc is not None and _store(descriptor, header, crc)
    finally:
        os.close(descriptor)


def _checksum(descriptor: int, header: SlotHeader, pause: Callable[[float], None]) -> int | None:
    crc = 0
    buffer = bytearray(min(CHUNK_BYTES, header.data_size))
    end = header.data_offset + header.data_size
    for offset in range(header.data_offset, end, CHUNK_BYTES):
        started_s = time.thread_time()
        if not _is_unchanged(descriptor, header):
            return None
        room = memoryview(buffer)[: min(CHUNK_BYTES, end - offset)]
        if os.preadv(descriptor, [room], offset) < len(room):
            return None
        crc = zlib.crc32(room, crc)
        pause(time.thread_time() - started_s)
    return crc


def _store(descriptor: int, header: SlotHeader, crc: int) -> bool:
    """The lock is taken only here, for an instant, so that nobody begins to write in between."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    try:
        if not _is_unchanged(descriptor, header):
            return False
        os.pwrite(descriptor, _WORD.pack(crc), 8 * Word.DATA_CRC)
        os.pwrite(descriptor, _WORD.pack(header.step + 1), 8 * Word.CHECKED)
        return True
    finally:
        fcntl.flock(descriptor, fcntl.LOCK_UN)


def _is_unchanged(descriptor: int, before: SlotHeader) -> bool:
    now = parse_header(os.pread(descriptor, HEADER_SIZE, 0))
    return now is not None and (now.sealed_step, now.sealed_ns, now.attempt) == (
        before.sealed_step,
        before.sealed_ns,
        before.attempt,
    )


@dataclass
class Checking:
    """The thread that does it, and what it was last shown."""

    _slots: Sequence[SlotFile] = ()
    _pace: Pace = field(default_factory=Pace)
    _thread: threading.Thread | None = None
    _stopping: threading.Event = field(default_factory=threading.Event)

    def show(self, slots: Sequence[SlotFile]) -> None:
        """Hand over what lies in the slots now; the first time the thread begins."""
        self._slots = slots
        if self._thread is None and slots:
            self._thread = start_thread(self._run, "checksums")

    def stop(self) -> None:
        """End the thread."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
        while not self._stopping.wait(LOOK_S):
            chosen = choose(self._slots, self._pace, time.monotonic_ns())
            if chosen is not None:
                self._check(chosen)

    def _check(self, slot: SlotFile) -> None:
        started_s = time.monotonic()
        try:
            is_done = check_slot(slot.path, slot.header, self._pause)
        except OSError as error:
            log.debug("can't read %s: %s", slot.path.name, error)
            return
        took_s = time.monotonic() - started_s
        if is_done and took_s > 0:
            self._pace = Pace(slot.header.data_size / took_s)

    def _pause(self, used_s: float) -> None:
        self._stopping.wait(used_s * (1 / CORE_SHARE - 1))
