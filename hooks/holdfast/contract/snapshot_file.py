"""Layout of a snapshot slot: one rank's state at one step, in a file of shared memory.

The sidecar makes the file, whole; the rank fills it; the sidecar, its writer and other nodes'
sidecars read it. This file names, packs and parses, and touches neither clock nor memory.
Layout (bytes, little endian):

    0      header   64 unsigned 64-bit words, each stored at once, then the job's name
    4096   layout   JSON: which tensor lies where; the same from snapshot to snapshot
    …      state    JSON of this step: everything that is no tensor
    …      data     the tensors' bytes, each on a border of 64

A slot is whole while the word SEALED holds its step + 1. Whoever writes it first stores 0 there and
last the step. Writers hold `flock(LOCK_EX)` on a descriptor of their own, readers `LOCK_SH`, both
without waiting: who can't have the lock leaves the slot alone.
"""

from __future__ import annotations

import errno
import json
import os
import re
import stat
import struct
import zlib
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any

MAGIC = int.from_bytes(b"HFSNAP01", "little")
HEADER_SIZE = 4096
WORD_COUNT = 64
ALIGNMENT = 64

OWN_DIRECTORY = "snapshots"
"""Below the node's directory of shared memory: slots of this node's ranks."""

COPIES_DIRECTORY = "copies"
"""Beside it: copies of other nodes' slots, in the same format."""

SLOT_NAME = re.compile(r"rank-(\d+)-slot-(\d+)")

FETCHED_PREFIX = "fetched-attempt-"

FETCHED_WITHIN_S = 600.0
"""So long ranks wait for copies from other nodes, before they go on from what else there is."""

MEMORY_NAME = "holdfast-slot"
"""Of memory without a name in a file system, as the kernel shows it."""

_LINK = re.compile(r"/proc/[1-9]\d*/fd/\d+")
_MEMORY = f"/memfd:{MEMORY_NAME} (deleted)"


class HeaderWord(IntEnum):
    """Index of each word of the header."""

    MAGIC = 0
    SEALED = 1  # step + 1; 0: torn, empty or being written
    STEP = 2  # of the snapshot that is here or being written
    ATTEMPT = 3
    EPOCH = 4
    RANK = 5
    WORLD_SIZE = 6
    FILE_SIZE = 7
    LAYOUT_SIZE = 8
    LAYOUT_CRC = 9
    STATE_OFFSET = 10
    STATE_CAPACITY = 11
    STATE_SIZE = 12
    STATE_CRC = 13
    DATA_OFFSET = 14
    DATA_SIZE = 15
    SEALED_NS = 16  # CLOCK_MONOTONIC of the node that sealed it
    CHECKED = 17  # step + 1 of the snapshot whose data has the checksum below; the sidecar's words
    DATA_CRC = 18


JOB_OFFSET = WORD_COUNT * 8
JOB_SIZE = 128
_WORDS = struct.Struct(f"<{WORD_COUNT}Q")


@dataclass(frozen=True)
class SlotHeader:
    """What a slot says of itself; `sealed_step` is None while torn, empty or being written."""

    sealed_step: int | None
    step: int
    attempt: int
    epoch: int
    rank: int
    world_size: int
    file_size: int
    layout_size: int
    layout_crc: int
    state_offset: int
    state_capacity: int
    state_size: int
    state_crc: int
    data_offset: int
    data_size: int
    sealed_ns: int
    data_crc: int | None
    """crc32 of the data zone as the sidecar read it after the seal; None: not read yet."""
    job: str


@dataclass(frozen=True)
class TensorEntry:
    """One tensor of a layout.

    `key`: shared tensors by their name in the checkpoint, a rank's own as `own/<n>`, the n-th that
    the state refers to. `shape` is what this rank holds; `whole` and `starts` place it in the
    tensor over all ranks (equal to `shape` and zeros unless it is sharded). `writes`: this rank is
    the one that puts it into a durable checkpoint (of replicas only one does).
    """

    key: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    """From the beginning of the data zone, bytes."""
    size: int
    """Bytes."""
    is_shared: bool = False
    whole: tuple[int, ...] = ()
    starts: tuple[int, ...] = ()
    writes: bool = True


def open_slot_file(path: Path, flags: int) -> int:
    """A descriptor of a slot by its name: a plain file, or a link to memory that the process named
    in it holds (see the sidecar's `checkpoint.snapshot.memory_holder`).

    No other link is followed: what it leads to has to be such memory, of this user. Raises OSError;
    FileNotFoundError, too, where nobody holds it any more.
    """
    try:
        return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
    target = _read_link(path)
    # Looked at before it is opened: a pid that is another process's now may lead to a pipe.
    if str(target.readlink()) != _MEMORY:
        raise FileNotFoundError(errno.ENOENT, "nobody holds it any more", str(path))
    descriptor = os.open(target, flags | os.O_CLOEXEC)
    is_ours = str(Path(f"/proc/self/fd/{descriptor}").readlink()) == _MEMORY
    if not is_ours or os.fstat(descriptor).st_uid != os.geteuid():
        os.close(descriptor)
        raise FileNotFoundError(errno.ENOENT, "nobody holds it any more", str(path))
    return descriptor


def read_slot_facts(path: Path) -> os.stat_result:
    """Of the slot that has this name now, without opening it. Raises OSError."""
    facts = path.lstat()
    return _read_link(path).stat() if stat.S_ISLNK(facts.st_mode) else facts


def _read_link(path: Path) -> Path:
    target = path.readlink()
    if _LINK.fullmatch(str(target)) is None:
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
    return target


def slot_name(rank: int, slot: int) -> str:
    """File name of a slot."""
    return f"rank-{rank}-slot-{slot}"


def fetched_name(attempt: int) -> str:
    """File name of the word that a sidecar leaves, beside `snapshots`, for the ranks of an attempt:
    whether their slots were brought from other nodes."""
    return f"{FETCHED_PREFIX}{attempt}"


def align(size: int) -> int:
    """The next border at or after this many bytes."""
    return (size + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT


def offsets(layout_size: int, state_capacity: int, data_size: int) -> tuple[int, int, int]:
    """Where the state and the data begin, and the size of the whole file (whole pages)."""
    state = align(HEADER_SIZE + layout_size)
    data = (state + state_capacity + 4095) // 4096 * 4096
    return state, data, (data + data_size + 4095) // 4096 * 4096


def parse_header(data: bytes) -> SlotHeader | None:
    """Parse the first HEADER_SIZE bytes; None when this is no slot of this version."""
    if len(data) < JOB_OFFSET + JOB_SIZE:
        return None
    words = _WORDS.unpack_from(data)
    if words[HeaderWord.MAGIC] != MAGIC:
        return None
    sealed = words[HeaderWord.SEALED]
    return SlotHeader(
        sealed_step=sealed - 1 if sealed else None,
        step=words[HeaderWord.STEP],
        attempt=words[HeaderWord.ATTEMPT],
        epoch=words[HeaderWord.EPOCH],
        rank=words[HeaderWord.RANK],
        world_size=words[HeaderWord.WORLD_SIZE],
        file_size=words[HeaderWord.FILE_SIZE],
        layout_size=words[HeaderWord.LAYOUT_SIZE],
        layout_crc=words[HeaderWord.LAYOUT_CRC],
        state_offset=words[HeaderWord.STATE_OFFSET],
        state_capacity=words[HeaderWord.STATE_CAPACITY],
        state_size=words[HeaderWord.STATE_SIZE],
        state_crc=words[HeaderWord.STATE_CRC],
        data_offset=words[HeaderWord.DATA_OFFSET],
        data_size=words[HeaderWord.DATA_SIZE],
        sealed_ns=words[HeaderWord.SEALED_NS],
        data_crc=words[HeaderWord.DATA_CRC]
        if sealed and words[HeaderWord.CHECKED] == sealed
        else None,
        job=data[JOB_OFFSET : JOB_OFFSET + JOB_SIZE].rstrip(b"\0").decode(errors="replace"),
    )


def pack_layout(entries: list[TensorEntry]) -> bytes:
    """A layout as JSON."""
    return json.dumps([vars(entry) for entry in entries], separators=(",", ":")).encode()


def parse_layout(text: bytes, crc: int) -> list[TensorEntry] | None:
    """The entries of a layout; None when it is torn or no layout."""
    if zlib.crc32(text) != crc:
        return None
    try:
        return [_entry(fields) for fields in json.loads(text)]
    except (ValueError, KeyError, TypeError):
        return None


def parse_state(text: bytes, crc: int) -> dict[str, Any] | None:
    """A snapshot's state; None when it is torn."""
    if zlib.crc32(text) != crc:
        return None
    try:
        state = json.loads(text)
    except ValueError:
        return None
    return state if isinstance(state, dict) else None


def _entry(fields: dict[str, Any]) -> TensorEntry:
    lists = {name: tuple(fields[name]) for name in ("shape", "whole", "starts")}
    return TensorEntry(**{**fields, **lists})
