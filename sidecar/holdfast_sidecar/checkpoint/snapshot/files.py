"""The slots' files: listing them, making them whole, and carrying over what lies in smaller ones.

Makes and removes files of the node's ranks alone; what a rank puts into them is not its business.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import stat
import struct
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.contract.owned import owned_file
from holdfast.contract.removing import unlink
from holdfast.contract.snapshot_file import (
    HEADER_SIZE,
    JOB_OFFSET,
    JOB_SIZE,
    MAGIC,
    SLOT_NAME,
    HeaderWord,
    SlotHeader,
    open_slot_file,
    parse_header,
    slot_name,
)
from holdfast_sidecar.checkpoint.snapshot.memory import NamedFiles, SlotMemory
from holdfast_sidecar.linux.threads import start_thread

log = logging.getLogger(__name__)

_WORD = struct.Struct("<Q")

NAMED = NamedFiles()
"""Where slots come from unless somebody holds them."""


class SlotBusy(Exception):
    """A rank is writing into the slot: nobody may take it away now."""


@dataclass(frozen=True)
class SlotFile:
    """A slot as it lay in its directory when it was looked at."""

    path: Path
    rank: int
    slot: int
    inode: int
    header: SlotHeader

    @property
    def sealed_step(self) -> int:
        """The step that is whole in it; -1: none is."""
        return -1 if self.header.sealed_step is None else self.header.sealed_step


def read_slots(directory: Path) -> list[SlotFile]:
    """Every slot in a directory, by rank and number; what is none is left out."""
    try:
        with os.scandir(directory) as entries:
            names = sorted(entry.name for entry in entries)
    except (FileNotFoundError, NotADirectoryError):
        return []
    found = [_read_slot(directory / name) for name in names if SLOT_NAME.fullmatch(name)]
    slots = [slot for slot in found if slot is not None]
    return sorted(slots, key=lambda one: (one.rank, one.slot))


def make_slot(
    directory: Path,
    rank: int,
    slot: int,
    size: int,
    job: str,
    memory: SlotMemory = NAMED,
) -> Path:
    """Make an empty slot; it is there whole, or not at all. Replaces one of the same name.

    Raises OSError, with nothing left behind.
    """
    with memory.make(directory / slot_name(rank, slot), size) as descriptor:
        _write_identity(descriptor, rank, size, job)
    return directory / slot_name(rank, slot)


def arrange_slots(
    directory: Path,
    rank: int,
    size: int,
    slots: int,
    existing: int,
    job: str,
    memory: SlotMemory = NAMED,
) -> bool:
    """Give a rank so many slots of at least this size; whether anything had to be done.

    What is sealed stays, as far as there is room for it: first the step that exists on all ranks,
    then the newest. Raises SlotBusy, or OSError when there is no room; what was made stays made.
    """
    present = [one for one in read_slots(directory) if one.rank == rank]
    if _are_right(present, size, slots):
        return False
    sealed = sorted(
        (one for one in present if one.sealed_step >= 0),
        key=lambda one: (one.sealed_step != existing, -one.sealed_step),
    )
    precious = sealed[:slots]
    with contextlib.ExitStack() as held:
        for one in present:
            held.enter_context(not_written(one.path))
        if [one for one in read_slots(directory) if one.rank == rank] != present:
            raise SlotBusy(f"rank {rank}'s slots")
        directory.mkdir(mode=0o700, exist_ok=True)
        for one in present:
            if one not in precious and not (one.slot < slots and one.header.file_size >= size):
                unlink(owned_file(one.path))
        _move(precious, directory, size, slots, job, memory)
        there = {one.slot for one in read_slots(directory) if one.rank == rank}
        for number in range(slots):
            if number not in there:
                make_slot(directory, rank, number, size, job, memory)
    return True


def remove_slots(slots: Sequence[SlotFile]) -> None:
    """Remove these. Raises SlotBusy when one is being written."""
    for one in slots:
        with not_written(one.path):
            unlink(owned_file(one.path), missing_ok=True)


@contextlib.contextmanager
def not_written(path: Path) -> Iterator[None]:
    """While this is open nobody begins to write the slot. Raises SlotBusy when somebody does now.

    A rank that takes the lock afterwards looks whether its file still has its name.
    """
    try:
        descriptor = open_slot_file(path, os.O_RDONLY)
    except FileNotFoundError:
        yield
        return
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SlotBusy(path.name) from None
        yield
    finally:
        os.close(descriptor)


def _are_right(present: Sequence[SlotFile], size: int, slots: int) -> bool:
    return [one.slot for one in present] == list(range(slots)) and all(
        one.header.file_size >= size for one in present
    )


def _move(
    precious: Sequence[SlotFile],
    directory: Path,
    size: int,
    slots: int,
    job: str,
    memory: SlotMemory,
) -> None:
    """Bring what is sealed into slots that are large enough and not numbered too high."""
    taken = {one.slot for one in precious}
    spare = [number for number in range(slots) if number not in taken]
    for one in precious:
        if one.slot < slots and one.header.file_size >= size:
            continue
        target = directory / slot_name(one.rank, one.slot if one.slot < slots else spare.pop(0))
        if one.header.file_size >= size:
            one.path.rename(target)
            continue
        with memory.make(target, size) as descriptor:
            _copy(one.path, descriptor)
            _write_identity(descriptor, one.rank, size, job)
        if one.path != target:
            unlink(owned_file(one.path))


def _write_identity(descriptor: int, rank: int, size: int, job: str) -> None:
    """What the sidecar says of a slot; the magic number, which makes it one, comes last."""
    name = job.encode()[:JOB_SIZE].ljust(JOB_SIZE, b"\0")
    os.pwrite(descriptor, name, JOB_OFFSET)
    for word, value in (
        (HeaderWord.RANK, rank),
        (HeaderWord.FILE_SIZE, size),
        (HeaderWord.MAGIC, MAGIC),
    ):
        os.pwrite(descriptor, _WORD.pack(value), 8 * word)


def _copy(source: Path, target: int) -> None:
    descriptor = open_slot_file(source, os.O_RDONLY)
    try:
        left = os.fstat(descriptor).st_size
        while left > 0:
            sent = os.sendfile(target, descriptor, None, left)
            if sent == 0:
                raise OSError(f"{source.name} ended early")
            left -= sent
    finally:
        os.close(descriptor)


def _read_slot(path: Path) -> SlotFile | None:
    try:
        descriptor = open_slot_file(path, os.O_RDONLY)
    except OSError:
        return None
    try:
        facts = os.fstat(descriptor)
        header = parse_header(os.pread(descriptor, HEADER_SIZE, 0))
    finally:
        os.close(descriptor)
    named = SLOT_NAME.fullmatch(path.name)
    if named is None or header is None or not stat.S_ISREG(facts.st_mode):
        return None
    if header.file_size != facts.st_size or header.rank != int(named[1]):
        return None
    return SlotFile(path, header.rank, int(named[2]), facts.st_ino, header)


# Reads sealed slots in the background and leaves their checksum, for whoever loads them later.
#
# Reading goes on without the slot's lock, so that no rank ever finds its slot taken by us: a word
# that changed tells that the slot was overwritten meanwhile.

CORE_SHARE = 0.05
"""Of one core. A checksum tells memory that went bad between seal and load, which is rare: it is
worth a twentieth of a core beside a training that may want them all, and no more."""

CHUNK_BYTES = 4 << 20
"""Some 3 ms of reading: short against the pauses, long against what a call costs."""

LOOK_S = 1.0
NICENESS = 19


@dataclass(frozen=True)
class ReadRate:
    """How fast slots are read, pauses included, as measured so far."""

    bytes_per_s: float = 0.5e9 * CORE_SHARE
    """zlib's own speed without vector instructions, until it has been measured."""

    def seconds(self, size: int) -> float:
        """How long reading so many bytes will take."""
        return size / self.bytes_per_s


def choose(slots: Sequence[SlotFile], pace: ReadRate, now_ns: int) -> SlotFile | None:
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
        os.pwrite(descriptor, _WORD.pack(crc), 8 * HeaderWord.DATA_CRC)
        os.pwrite(descriptor, _WORD.pack(header.step + 1), 8 * HeaderWord.CHECKED)
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
    _pace: ReadRate = field(default_factory=ReadRate)
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
            self._pace = ReadRate(slot.header.data_size / took_s)

    def _pause(self, used_s: float) -> None:
        self._stopping.wait(used_s * (1 / CORE_SHARE - 1))
