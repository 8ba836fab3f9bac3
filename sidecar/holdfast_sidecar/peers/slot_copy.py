"""A slot being written from what another node sends: torn until its last word says it is whole.

Under an exclusive lock, so that neither a reader nor another writer gets in between.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import time
import zlib
from dataclasses import dataclass
from pathlib import Path

from holdfast.owned import owned_file
from holdfast.removing import unlink
from holdfast.snapshot_file import HEADER_SIZE, SlotHeader, Word, open_slot_file, parse_header
from holdfast_sidecar.peers.framing import Refused
from holdfast_sidecar.peers.sealed_slots import is_plausible
from holdfast_sidecar.snapshots.slot_files import NAMED
from holdfast_sidecar.snapshots.slot_memory import SlotMemory

_WORD = struct.Struct("<Q")


class SlotBusy(Exception):
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
        raise Refused("what was sent is no slot")
    if Expected(header.job, header.rank, header.attempt, header.step) != expected:
        raise Refused(f"another slot was sent than {expected}")
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
            self._store(Word.SEALED, 0)
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
            raise Refused("layout or state are not what their checksums say")
        self._store(Word.SEALED_NS, time.monotonic_ns())
        self._store(Word.DATA_CRC, data_crc)
        self._store(Word.CHECKED, header.step + 1)
        self._store(Word.SEALED, header.step + 1)

    def close(self) -> None:
        """Let go of file and lock."""
        os.close(self._descriptor)

    def _take_lock(self) -> None:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SlotBusy from None

    def _store(self, word: Word, value: int) -> None:
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
            os.pwrite(descriptor, _WORD.pack(0), 8 * Word.SEALED)
        return True
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)


def unsealed(raw_header: bytes) -> bytes:
    """A header without the words that say whether it is whole, and checked: what is left tells one
    sealing of a slot from any other."""
    header = bytearray(raw_header)
    for word in (Word.SEALED, Word.CHECKED, Word.DATA_CRC):
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
