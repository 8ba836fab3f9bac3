"""Slots as they lie in a directory of this node: which are sealed, and one held for reading.

Read by pread, never mapped: a file that is cut short must not be a SIGBUS of the sidecar.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from holdfast.snapshot_file import (
    HEADER_SIZE,
    SLOT_NAME,
    SlotHeader,
    open_slot_file,
    parse_header,
)


@dataclass(frozen=True)
class SlotFile:
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


def read_slots(directory: Path, rank: int | None = None) -> list[SlotFile]:
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
            found.append(SlotFile(path, int(match[2]), header))
    return found


def sealed_slots(directory: Path, rank: int | None = None) -> list[SlotFile]:
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
