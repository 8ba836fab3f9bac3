"""Slots as they lie in a directory of this node: which are sealed, and one held for reading.

Read by pread, never mapped: a file that is cut short must not be a SIGBUS of the sidecar.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import logging
import os
import select
import struct
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from holdfast.contract.owned import owned_file
from holdfast.contract.removing import unlink
from holdfast.contract.snapshot_file import (
    COPIES_DIRECTORY,
    HEADER_SIZE,
    SLOT_NAME,
    HeaderWord,
    SlotHeader,
    open_slot_file,
    parse_header,
    slot_name,
)
from holdfast_sidecar.checkpoint.replication.wire import ProtocolError
from holdfast_sidecar.checkpoint.snapshot.files import NAMED
from holdfast_sidecar.checkpoint.snapshot.memory import SlotMemory
from holdfast_sidecar.linux.threads import start_thread
from holdfast_sidecar.policy.replication import Copy, copy_to_overwrite

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ReplicaSlot:
    """A slot's file and what its header said when it was read."""

    path: Path
    index: int
    header: SlotHeader


@dataclass(frozen=True)
class HeldSlot:
    """A sealed slot under a shared lock: nobody writes it meanwhile."""

    descriptor: int
    header: SlotHeader
    raw_header: bytes

    def read(self, offset: int, room: memoryview) -> int:
        """Bytes from there on; fewer than asked for only where the file ends."""
        return os.preadv(self.descriptor, [room], offset)

    def is_still_sealed(self) -> bool:
        """Whether it is what it was when it was taken hold of."""
        now = parse_header(os.pread(self.descriptor, HEADER_SIZE, 0))
        return now is not None and (now.sealed_step, now.attempt, now.epoch) == (
            self.header.sealed_step,
            self.header.attempt,
            self.header.epoch,
        )


def read_slots(directory: Path, rank: int | None = None) -> list[ReplicaSlot]:
    """Slots of this rank (None: of all), sealed or not; what is none is left out."""
    try:
        paths = sorted(directory.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    found = []
    for path in paths:
        match = SLOT_NAME.fullmatch(path.name)
        if match is None or (rank is not None and int(match[1]) != rank):
            continue
        header = read_header(path)
        if header is not None and header.rank == int(match[1]):
            found.append(ReplicaSlot(path, int(match[2]), header))
    return found


def sealed_slots(directory: Path, rank: int | None = None) -> list[ReplicaSlot]:
    """The sealed ones, newest first."""
    sealed = [s for s in read_slots(directory, rank) if s.header.sealed_step is not None]
    return sorted(sealed, key=lambda s: (s.header.attempt, s.header.step), reverse=True)


def read_header(path: Path) -> SlotHeader | None:
    """A slot's header as it is now; None when it can't be read or is none."""
    try:
        descriptor = open_slot_file(path, os.O_RDONLY)
    except OSError:
        return None
    try:
        return parse_header(os.pread(descriptor, HEADER_SIZE, 0))
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def holding(path: Path, attempt: int, step: int) -> Iterator[HeldSlot | None]:
    """The slot for reading, if it holds that step and nobody writes it; else None."""
    try:
        descriptor = open_slot_file(path, os.O_RDONLY)
    except OSError:
        yield None
        return
    try:
        yield _hold(descriptor, attempt, step)
    finally:
        os.close(descriptor)  # which lets go of the lock


def _hold(descriptor: int, attempt: int, step: int) -> HeldSlot | None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return None
    raw = os.pread(descriptor, HEADER_SIZE, 0)
    header = parse_header(raw)
    if header is None or not is_plausible(header):
        return None
    if (header.sealed_step, header.attempt) != (step, attempt):
        return None
    if os.fstat(descriptor).st_size < header.file_size:
        return None
    return HeldSlot(descriptor, header, raw)


def is_plausible(header: SlotHeader) -> bool:
    """Whether the zones follow one another inside the file; what is copied is cut by them."""
    return (
        header.state_size <= header.state_capacity
        and HEADER_SIZE + header.layout_size <= header.state_offset
        and header.state_offset + header.state_capacity <= header.data_offset
        and header.data_offset + header.data_size <= header.file_size
    )


def zones(header: SlotHeader) -> tuple[tuple[int, int], tuple[int, int]]:
    """What there is to copy besides the header, as (offset, size): layout and state, data."""
    state_end = header.state_offset + header.state_size
    return (HEADER_SIZE, state_end - HEADER_SIZE), (header.data_offset, header.data_size)


# A slot being written from what another node sends: torn until its last word says it is whole.
#
# Under an exclusive lock, so that neither a reader nor another writer gets in between.

_WORD = struct.Struct("<Q")


class SlotInUse(Exception):
    """Somebody reads or writes the slot that was to be overwritten."""


@dataclass(frozen=True)
class Expected:
    """Whose state at which step is meant to come."""

    job: str
    rank: int
    attempt: int
    step: int


def parse_expected(raw_header: bytes, expected: Expected) -> SlotHeader:
    """The header that was sent, if it is what was asked for; raises Refused."""
    header = parse_header(raw_header)
    if header is None or not is_plausible(header):
        raise ProtocolError("what was sent is no slot")
    if Expected(header.job, header.rank, header.attempt, header.step) != expected:
        raise ProtocolError(f"another slot was sent than {expected}")
    return header


class SlotCopy:
    """One file being overwritten. Close it in any case; unsealed it stays torn."""

    def __init__(
        self, path: Path, header: SlotHeader, raw_header: bytes, memory: SlotMemory = NAMED
    ) -> None:
        """Make or take the file and tear it. Raises SlotBusy, or OSError (no space)."""
        self._header = header
        self._descriptor = _open_whole(path, header.file_size, memory)
        try:
            self._take_lock()
            self._store(HeaderWord.SEALED, 0)
            os.pwrite(self._descriptor, unsealed(raw_header), 0)
        except BaseException:
            os.close(self._descriptor)
            raise

    def write(self, offset: int, data: memoryview) -> None:
        """Put bytes where they belong."""
        while data:
            count = os.pwrite(self._descriptor, data, offset)
            offset, data = offset + count, data[count:]

    def seal(self, data_crc: int) -> None:
        """Say that it is whole, once layout and state are; `data_crc` was made of what came."""
        header = self._header
        layout = os.pread(self._descriptor, header.layout_size, HEADER_SIZE)
        state = os.pread(self._descriptor, header.state_size, header.state_offset)
        if (zlib.crc32(layout), zlib.crc32(state)) != (header.layout_crc, header.state_crc):
            raise ProtocolError("layout or state are not what their checksums say")
        self._store(HeaderWord.SEALED_NS, time.monotonic_ns())
        self._store(HeaderWord.DATA_CRC, data_crc)
        self._store(HeaderWord.CHECKED, header.step + 1)
        self._store(HeaderWord.SEALED, header.step + 1)

    def close(self) -> None:
        """Let go of file and lock."""
        os.close(self._descriptor)

    def _take_lock(self) -> None:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SlotInUse from None

    def _store(self, word: HeaderWord, value: int) -> None:
        os.pwrite(self._descriptor, _WORD.pack(value), 8 * word)


def clear(path: Path, attempt: int, step: int) -> bool:
    """Tear a slot that holds this step, so that nobody resumes from it; False if it is in use."""
    try:
        descriptor = open_slot_file(path, os.O_RDWR)
    except FileNotFoundError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        header = parse_header(os.pread(descriptor, HEADER_SIZE, 0))
        if header is not None and (header.attempt, header.sealed_step) == (attempt, step):
            os.pwrite(descriptor, _WORD.pack(0), 8 * HeaderWord.SEALED)
        return True
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)


def unsealed(raw_header: bytes) -> bytes:
    """A header without the words that say whether it is whole, and checked: what is left tells one
    sealing of a slot from any other."""
    header = bytearray(raw_header)
    for word in (HeaderWord.SEALED, HeaderWord.CHECKED, HeaderWord.DATA_CRC):
        _WORD.pack_into(header, 8 * word, 0)
    return bytes(header)


def _open_whole(path: Path, size: int, memory: SlotMemory) -> int:
    """The slot, with all its memory. One of another size is replaced, never cut: who has it mapped
    keeps what it has."""
    path.parent.mkdir(mode=0o700, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        descriptor = open_slot_file(path, os.O_RDWR)
        if os.fstat(descriptor).st_size == size:
            return descriptor
        os.close(descriptor)
        unlink(owned_file(path), missing_ok=True)
    with memory.make(path, size):
        pass
    return open_slot_file(path, os.O_RDWR)


# The copies of other nodes' snapshots that lie on this node: two files for each rank.

FILES = (0, 1)


@dataclass(frozen=True)
class Copies:
    """Looks at the files anew each time: they are the truth, also for a sidecar just started."""

    shm: Path

    @property
    def directory(self) -> Path:
        """Where they lie."""
        return self.shm / COPIES_DIRECTORY

    def of(self, rank: int) -> dict[int, Copy | None]:
        """File -> what is sealed in it."""
        found: dict[int, Copy | None] = dict.fromkeys(FILES)
        for slot in sealed_slots(self.directory, rank):
            if slot.index in found:
                found[slot.index] = _copy(slot)
        return found

    def newest(self, rank: int, attempt: int | None = None) -> int:
        """Newest step (of this attempt, if one is named); -1: none."""
        copies = (copy for copy in self.of(rank).values() if copy is not None)
        return max((c.step for c in copies if attempt in (None, c.attempt)), default=-1)

    def has(self, rank: int, copy: Copy) -> bool:
        """Whether this one is here already."""
        return copy in self.of(rank).values()

    def next_path(
        self, rank: int, attempt: int, through: int, *, settled: int = -1, may_be_newest: bool
    ) -> Path | None:
        """The file that the next copy goes into; None: none may be overwritten now."""
        file = copy_to_overwrite(
            self.of(rank), attempt, through, settled=settled, may_be_newest=may_be_newest
        )
        return None if file is None else self.directory / slot_name(rank, file)

    def steps(self) -> dict[str, list[int]]:
        """Rank -> sealed steps, newest first, as a report has it."""
        found: dict[str, list[int]] = {}
        for slot in sealed_slots(self.directory):
            found.setdefault(str(slot.header.rank), []).append(slot.header.step)
        return found

    def clear(self, is_abandoned: Callable[[Copy], bool]) -> list[int]:
        """Tear those that nobody may resume from; answers the steps that are gone."""
        gone = []
        for slot in sealed_slots(self.directory):
            copy = _copy(slot)
            if is_abandoned(copy) and clear(slot.path, copy.attempt, copy.step):
                gone.append(copy.step)
        return gone

    def has_others_than(self, attempt: int) -> bool:
        """Whether some copy is not of this attempt (a later one is of an earlier run)."""
        return any(slot.header.attempt != attempt for slot in sealed_slots(self.directory))

    def remove(self, rank: int) -> None:
        """Give back the memory of a rank's copies; who reads one keeps it."""
        for slot in read_slots(self.directory, rank):
            unlink(owned_file(slot.path), missing_ok=True)


def _copy(slot: ReplicaSlot) -> Copy:
    return Copy(slot.header.attempt, slot.header.step)


# Wakes whoever waits for a rank to seal a slot: the kernel tells when a slot's file is closed.
#
# Only a wake-up; what is sealed stands in the headers. Where the kernel tells nothing, the waiter
# looks by itself every so often.

WATCHED_LOOK_S = 0.25
"""Between looks while the kernel tells: only for a wake-up that was lost."""

UNWATCHED_LOOK_S = 0.02
"""While it doesn't: soon enough not to double what a copy takes, at about 1 % of a core."""

_IN_CLOSE_WRITE = 0x8
_FLAGS = os.O_CLOEXEC | os.O_NONBLOCK
_EVENT = struct.Struct("iIII")
_IN_IGNORED = 0x8000


class SealWatch:
    """Watches one directory while it exists. `wait` may return for nothing, and may be late."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = -1
        self._turn = threading.Condition()
        self._count = 0
        self._closed = False

    @property
    def count(self) -> int:
        """How many wake-ups there were; to be read before looking, and given to `wait`."""
        return self._count

    def wait(self, seen: int) -> None:
        """Return when a slot was closed since `seen` was read, or it is time to look anyway."""
        self._start()
        with self._turn:
            timeout_s = UNWATCHED_LOOK_S if self._descriptor < 0 else WATCHED_LOOK_S
            self._turn.wait_for(lambda: self._count != seen or self._closed, timeout_s)

    def close(self) -> None:
        """Wake all waiters for good."""
        with self._turn:
            self._closed = True
            self._turn.notify_all()

    def _start(self) -> None:
        with self._turn:
            if self._descriptor >= 0 or self._closed or not self._directory.is_dir():
                return
            descriptor = self._libc.inotify_init1(_FLAGS)
            path = os.fsencode(self._directory)
            if descriptor < 0:
                return
            if self._libc.inotify_add_watch(descriptor, path, _IN_CLOSE_WRITE) < 0:
                os.close(descriptor)
                return
            self._descriptor = descriptor
            if start_thread(self._read, "seal-watch") is None:
                os.close(descriptor)
                self._descriptor = -1

    def _read(self) -> None:
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        while not self._closed:
            if not poll.poll(1000):
                continue
            events = os.read(self._descriptor, 65536)
            with self._turn:
                self._count += 1
                self._turn.notify_all()
                if _is_over(events):  # the directory is gone; a later waiter starts anew
                    break
        with self._turn:
            os.close(self._descriptor)
            self._descriptor = -1


def _is_over(events: bytes) -> bool:
    offset = 0
    while offset + _EVENT.size <= len(events):
        _, mask, _, length = _EVENT.unpack_from(events, offset)
        if mask & _IN_IGNORED:
            return True
        offset += _EVENT.size + length
    return False
