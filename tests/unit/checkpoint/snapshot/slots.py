"""Slots filled by hand, as ranks would."""

from __future__ import annotations

import struct
import time
import zlib
from pathlib import Path

from holdfast.contract.snapshot_file import (
    HEADER_SIZE,
    HeaderWord,
    TensorEntry,
    align,
    offsets,
    pack_layout,
    slot_name,
)
from holdfast_sidecar.checkpoint.snapshot.files import make_slot

SIZE = 4 * 4096


def store(path: Path, word: HeaderWord, value: int) -> None:
    """Store a word of a slot's header."""
    with path.open("r+b") as file:
        file.seek(8 * word)
        file.write(struct.pack("<Q", value))


def write(path: Path, offset: int, data: bytes) -> None:
    """Write into a slot."""
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


def seal(path: Path, step: int, data: bytes = b"weights", sealed_ns: int | None = None) -> None:
    """Put a state of one tensor into a slot."""
    layout = pack_layout([TensorEntry("w", "uint8", (len(data),), 0, len(data))])
    state = b"{}"
    state_at, data_at, _ = offsets(len(layout), 64, align(len(data)))
    write(path, HEADER_SIZE, layout)
    write(path, state_at, state)
    write(path, data_at, data)
    for word, value in (
        (HeaderWord.STEP, step),
        (HeaderWord.LAYOUT_SIZE, len(layout)),
        (HeaderWord.LAYOUT_CRC, zlib.crc32(layout)),
        (HeaderWord.STATE_OFFSET, state_at),
        (HeaderWord.STATE_CAPACITY, 64),
        (HeaderWord.STATE_SIZE, len(state)),
        (HeaderWord.STATE_CRC, zlib.crc32(state)),
        (HeaderWord.DATA_OFFSET, data_at),
        (HeaderWord.DATA_SIZE, len(data)),
        (HeaderWord.SEALED_NS, time.monotonic_ns() if sealed_ns is None else sealed_ns),
        (HeaderWord.CHECKED, 0),
        (HeaderWord.SEALED, step + 1),
    ):
        store(path, word, value)


def filled(directory: Path, rank: int, slot: int, step: int, data: bytes = b"weights") -> Path:
    """A slot that was made and filled."""
    path = make_slot(directory, rank, slot, SIZE, "job")
    seal(path, step, data)
    assert path.name == slot_name(rank, slot)
    return path
