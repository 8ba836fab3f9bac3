"""The slots' files: listing them, making them whole, and carrying over what lies in smaller ones.

Makes and removes files of the node's ranks alone; what a rank puts into them is not its business.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from holdfast.owned import owned_file
from holdfast.removing import unlink
from holdfast.snapshot_file import (
    HEADER_SIZE,
    JOB_OFFSET,
    JOB_SIZE,
    MAGIC,
    SLOT_NAME,
    SlotHeader,
    Word,
    open_slot_file,
    parse_header,
    slot_name,
)
from holdfast_sidecar.snapshots.slot_memory import NamedFiles, SlotMemory

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
    for word, value in ((Word.RANK, rank), (Word.FILE_SIZE, size), (Word.MAGIC, MAGIC)):
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
