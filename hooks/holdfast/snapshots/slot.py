"""A slot file as the rank sees it: mapped, locked while it is written, sealed last.

The sidecar made the file; nothing here creates, grows or removes one.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import threading
import weakref
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch

from holdfast.contract.snapshot_file import (
    HEADER_SIZE,
    JOB_OFFSET,
    JOB_SIZE,
    HeaderWord,
    SlotHeader,
    offsets,
    open_slot_file,
    parse_header,
    read_slot_facts,
)
from holdfast.rank.descriptors import map_file
from holdfast.snapshots.layout import SlotLayout

_MADV_POPULATE_WRITE = 23
_CHUNK = 64 << 20
"""Prepared in parts: the kernel holds the process's map meanwhile, which training faults need."""


@dataclass(frozen=True)
class Author:
    """Whose state it is; goes into the header."""

    job: str
    attempt: int
    epoch: int
    rank: int
    world_size: int


class Slot:
    """One mapped file. Only the process that opened it may write it, never a fork of it."""

    def __init__(self, path: Path, descriptor: int, facts: os.stat_result) -> None:
        """Owns the descriptor, unless an error is raised."""
        self.path = path
        self.size = facts.st_size
        self._memory = memory = map_file(descriptor, facts.st_size)
        self._descriptor = descriptor
        weakref.finalize(self, os.close, descriptor).atexit = False
        self._file = (facts.st_dev, facts.st_ino)
        self._words: memoryview[int] = memoryview(memory)[:JOB_OFFSET].cast("Q")
        self._pid = os.getpid()
        self._ready = threading.Event()
        self.is_dropped = False
        """Whether it is to be unmapped, by whoever uses it last."""
        self.described_by = b""
        """Text of the layout that this process wrote into it last."""

    @property
    def is_ready(self) -> bool:
        """Whether its pages are there: the first copy into them would take five times as long."""
        return self._ready.is_set()

    def await_ready(self) -> None:
        """Wait until its pages are there."""
        self._ready.wait()

    def is_in_place(self) -> bool:
        """Whether this is still the file of that name: the sidecar may have made another."""
        try:
            facts = read_slot_facts(self.path)
        except OSError:
            return False
        return (facts.st_dev, facts.st_ino) == self._file and facts.st_size == self.size

    def header(self) -> SlotHeader | None:
        """What it says of itself."""
        return parse_header(self._memory[:HEADER_SIZE])

    def bytes(self, start: int, size: int) -> bytes:
        """A piece of it; shorter at its end."""
        return self._memory[start : start + size]

    def read_into(self, start: int, room: memoryview) -> None:
        """Fill this room from there on; raises OSError when the slot ends before.

        Read, not copied from the map: in that the kernel would first have to enter every page,
        which takes longer than the copy.
        """
        done = 0
        while done < len(room):
            count = os.preadv(self._descriptor, [room[done:]], start + done)
            if count == 0:
                raise OSError(f"{self.path.name} ends after {start + done} bytes")
            done += count

    def data(self, start: int, size: int) -> torch.Tensor:
        """A piece of it as a tensor of bytes, not copied; raises ValueError when there is none."""
        if size == 0:
            return torch.empty(0, dtype=torch.uint8)
        return torch.frombuffer(self._memory, dtype=torch.uint8, count=size, offset=start)

    @property
    def address(self) -> int:
        """Where it is mapped."""
        return ctypes.addressof(ctypes.c_char.from_buffer(self._memory))

    def populate(self) -> None:
        """Have its pages mapped, where the kernel can do it ahead (Linux 5.14)."""
        _populate(self.address, self.size)

    def say_ready(self) -> None:
        """Its pages are there."""
        self._ready.set()

    @contextmanager
    def reading(self) -> Iterator[bool]:
        """False: somebody writes it now."""
        with _locked(self.path, fcntl.LOCK_SH) as descriptor:
            yield descriptor is not None and self._is(descriptor)

    def begin(self) -> Writing | None:
        """Take it for writing: from here on it is torn. None: somebody reads it, or it is gone."""
        if os.getpid() != self._pid:
            return None
        descriptor = _lock(self.path, fcntl.LOCK_EX)
        if descriptor is None:
            return None
        # Looked at under the lock, which whoever puts another file in its place has to hold too.
        if not (self._is(descriptor) and self.is_in_place()):
            _unlock(descriptor)
            return None
        self._words[HeaderWord.SEALED] = 0
        self._words[HeaderWord.CHECKED] = 0  # else it would vouch for this step as it once was
        return Writing(self, self._memory, self._words, descriptor)

    def clear(self) -> bool:
        """Make it torn for good; False when somebody holds it."""
        writing = self.begin()
        if writing is not None:
            writing.let_go()
        return writing is not None

    def _is(self, descriptor: int) -> bool:
        facts = os.fstat(descriptor)
        return (facts.st_dev, facts.st_ino) == self._file


@dataclass
class Writing:
    """A slot that is being written. Ends with `seal` or `let_go`."""

    slot: Slot
    _memory: mmap.mmap
    _words: memoryview[int]
    _descriptor: int
    _ended: bool = field(default=False)

    def describe(self, author: Author, layout: SlotLayout, step: int) -> None:
        """Whose state, of which step, lies where. The layout is written only where it is new."""
        words = self._words
        words[HeaderWord.STEP] = step
        words[HeaderWord.ATTEMPT] = author.attempt
        words[HeaderWord.EPOCH] = author.epoch
        words[HeaderWord.RANK] = author.rank
        words[HeaderWord.WORLD_SIZE] = author.world_size
        self._memory[JOB_OFFSET : JOB_OFFSET + JOB_SIZE] = author.job.encode()[:JOB_SIZE].ljust(
            JOB_SIZE, b"\0"
        )
        if self.slot.described_by != layout.text:
            length = len(layout.text)
            self._memory[HEADER_SIZE : HEADER_SIZE + length] = layout.text
            words[HeaderWord.LAYOUT_SIZE] = length
            words[HeaderWord.LAYOUT_CRC] = layout.crc
            self.slot.described_by = layout.text
        words[HeaderWord.STATE_OFFSET] = layout.state_offset
        words[HeaderWord.STATE_CAPACITY] = layout.state_capacity
        words[HeaderWord.DATA_OFFSET] = layout.data_offset
        words[HeaderWord.DATA_SIZE] = layout.data_size

    def state(self, text: bytes) -> None:
        """Everything that is no tensor."""
        start = self._words[HeaderWord.STATE_OFFSET]
        self._memory[start : start + len(text)] = text
        self._words[HeaderWord.STATE_SIZE] = len(text)
        self._words[HeaderWord.STATE_CRC] = zlib.crc32(text)

    def seal(self, now_ns: int) -> None:
        """It is whole."""
        self._words[HeaderWord.SEALED_NS] = now_ns
        self._words[HeaderWord.SEALED] = self._words[HeaderWord.STEP] + 1
        self.let_go()

    def let_go(self) -> None:
        """Give the lock back; what was not sealed stays torn."""
        if not self._ended:
            self._ended = True
            _unlock(self._descriptor)


def open_slot(path: Path) -> Slot | None:
    """Map a slot; None when there is no such file, or it is none that the sidecar made whole."""
    try:
        descriptor = open_slot_file(path, os.O_RDWR)
    except OSError:
        return None
    slot = None
    try:
        facts = os.fstat(descriptor)
        header = parse_header(os.pread(descriptor, HEADER_SIZE, 0))
        # A sparse file, or one shorter than it says, would be SIGBUS, which no guard catches.
        if (
            header is not None
            and facts.st_uid == os.geteuid()
            and facts.st_size >= HEADER_SIZE
            and facts.st_size == header.file_size
            and facts.st_blocks * 512 >= facts.st_size
        ):
            slot = Slot(path, descriptor, facts)
    except (OSError, ValueError):
        slot = None
    if slot is None:
        os.close(descriptor)
    return slot


def is_whole(slot: Slot, header: SlotHeader) -> bool:
    """Whether a header's borders lie inside its file, in their order."""
    state, data, end = offsets(header.layout_size, header.state_capacity, header.data_size)
    return (
        header.state_size <= header.state_capacity
        and (state, data) == (header.state_offset, header.data_offset)
        and end <= slot.size
    )


@contextmanager
def _locked(path: Path, kind: int) -> Iterator[int | None]:
    descriptor = _lock(path, kind)
    try:
        yield descriptor
    finally:
        if descriptor is not None:
            _unlock(descriptor)


def _lock(path: Path, kind: int) -> int | None:
    """A descriptor of its own, because a lock belongs to the opening, not to the process."""
    try:
        descriptor = open_slot_file(path, os.O_RDWR)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def _unlock(descriptor: int) -> None:
    # Said, not left to the closing: a fork of this process may hold the descriptor too.
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)


def _populate(address: int, size: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    for start in range(0, size, _CHUNK):
        part = min(_CHUNK, size - start)
        if libc.madvise(
            ctypes.c_void_p(address + start), ctypes.c_size_t(part), _MADV_POPULATE_WRITE
        ):
            return  # an older kernel: the first copy is slower
