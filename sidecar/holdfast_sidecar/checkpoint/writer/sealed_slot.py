"""One rank's snapshot as it lies in shared memory: found by its step, locked, mapped, checked."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.contract.snapshot_file import (
    COPIES_DIRECTORY,
    HEADER_SIZE,
    OWN_DIRECTORY,
    SLOT_NAME,
    SlotHeader,
    TensorEntry,
    open_slot_file,
    parse_header,
    parse_layout,
    parse_state,
)

_PIECE = 8 << 20


class NoSlot(OSError):
    """No slot holds what was to be written, or not as it was sealed."""


@dataclass(frozen=True)
class SealedSlot:
    """A snapshot that nobody can change while this is open."""

    header: SlotHeader
    entries: list[TensorEntry]
    state: dict[str, Any]
    """See the hooks' `snapshots.captured`."""
    memory: mmap.mmap

    @property
    def size_bytes(self) -> int:
        """Of the tensors that this rank writes."""
        return sum(e.size for e in self.entries if e.writes or not e.is_shared)

    @property
    def checked_bytes(self) -> int:
        """What `check` reads."""
        return 0 if self.header.data_crc is None else self.header.data_size

    def check(self, tell: Callable[[int], object]) -> None:
        """Raises NoSlot where the tensors have changed since a sidecar looked at them."""
        start, crc = self.header.data_offset, 0
        with memoryview(self.memory) as whole:
            for offset in range(start, start + self.checked_bytes, _PIECE):
                piece = whole[offset : min(offset + _PIECE, start + self.checked_bytes)]
                crc = zlib.crc32(piece, crc)
                tell(len(piece))
        if self.header.data_crc is not None and crc != self.header.data_crc:
            raise NoSlot(
                errno.EILSEQ,
                f"rank {self.header.rank}'s snapshot of step {self.header.step} has changed in "
                "memory",
            )


@contextmanager
def open_slot(shm: Path, rank: int, step: int, since: int = 0) -> Iterator[SealedSlot]:
    """The slot of this node that holds this rank's part of that step, its own before a copy.

    Its tensors are not checked yet. What attempts before `since` sealed does not count. Raises
    NoSlot. Under its lock no rank, new attempt or partner overwrites it.
    """
    descriptor, header = _find(shm, rank, step, since)
    try:
        # A private mapping: what is read can be handed to torch, and nothing is ever written.
        memory = mmap.mmap(
            descriptor, header.data_offset + header.data_size, access=mmap.ACCESS_COPY
        )
        yield _read(header, memory)
    finally:
        # The mapping goes with the last tensor that looks into it.
        os.close(descriptor)


@contextmanager
def open_slots(
    shm: Path, ranks: Iterable[int], step: int, since: int = 0
) -> Iterator[list[SealedSlot]]:
    """All of these, before the first is written: while that takes, the next attempt's ranks may
    already want them. Raises NoSlot."""
    with ExitStack() as opened:
        yield [opened.enter_context(open_slot(shm, rank, step, since)) for rank in ranks]


def _find(shm: Path, rank: int, step: int, since: int) -> tuple[int, SlotHeader]:
    for directory in (shm / OWN_DIRECTORY, shm / COPIES_DIRECTORY):
        for path in _slots_of(directory, rank):
            found = _lock(path, step, since)
            if found is not None:
                return found
    raise NoSlot(errno.ENODATA, f"rank {rank}'s snapshot of step {step} is not there any more")


def _slots_of(directory: Path, rank: int) -> list[Path]:
    try:
        paths = sorted(directory.iterdir())
    except FileNotFoundError:
        return []
    matches = ((path, SLOT_NAME.fullmatch(path.name)) for path in paths)
    return [path for path, match in matches if match is not None and int(match[1]) == rank]


def _lock(path: Path, step: int, since: int) -> tuple[int, SlotHeader] | None:
    """Descriptor and header, if it holds that step and nobody is writing it."""
    try:
        descriptor = open_slot_file(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        header = parse_header(os.pread(descriptor, HEADER_SIZE, 0))
        size = os.fstat(descriptor).st_size
    except BlockingIOError:
        header, size = None, 0
    is_it = header is not None and header.sealed_step == step and header.attempt >= since
    if header is None or not is_it or header.data_offset + header.data_size > size:
        os.close(descriptor)
        return None
    return descriptor, header


def _read(header: SlotHeader, memory: mmap.mmap) -> SealedSlot:
    layout = memory[HEADER_SIZE : HEADER_SIZE + header.layout_size]
    state = memory[header.state_offset : header.state_offset + header.state_size]
    entries = parse_layout(layout, header.layout_crc)
    plain = parse_state(state, header.state_crc)
    if entries is None or plain is None:
        raise NoSlot(errno.EILSEQ, f"rank {header.rank}'s snapshot of step {header.step} is torn")
    return SealedSlot(header, entries, plain, memory)
