"""Slot files as a rank would have sealed them, and pieces of a node for tests of peer copies."""

from __future__ import annotations

import json
import struct
import time
import zlib
from pathlib import Path

from holdfast.contract.snapshot_file import (
    HEADER_SIZE,
    JOB_OFFSET,
    MAGIC,
    OWN_DIRECTORY,
    HeaderWord,
    offsets,
    parse_header,
    slot_name,
)

JOB = "job"
WORD = struct.Struct("<Q")


def slot_bytes(
    rank: int, step: int, attempt: int = 0, data: bytes = b"", *, checked: bool = True
) -> bytes:
    """A sealed slot."""
    layout = json.dumps([rank]).encode()
    state = json.dumps({"step": step}).encode()
    state_offset, data_offset, size = offsets(len(layout), 4096, len(data))
    words = {
        HeaderWord.MAGIC: MAGIC,
        HeaderWord.SEALED: step + 1,
        HeaderWord.STEP: step,
        HeaderWord.ATTEMPT: attempt,
        HeaderWord.EPOCH: 1,
        HeaderWord.RANK: rank,
        HeaderWord.WORLD_SIZE: 2,
        HeaderWord.FILE_SIZE: size,
        HeaderWord.LAYOUT_SIZE: len(layout),
        HeaderWord.LAYOUT_CRC: zlib.crc32(layout),
        HeaderWord.STATE_OFFSET: state_offset,
        HeaderWord.STATE_CAPACITY: 4096,
        HeaderWord.STATE_SIZE: len(state),
        HeaderWord.STATE_CRC: zlib.crc32(state),
        HeaderWord.DATA_OFFSET: data_offset,
        HeaderWord.DATA_SIZE: len(data),
        HeaderWord.SEALED_NS: time.monotonic_ns(),
        HeaderWord.CHECKED: step + 1 if checked else 0,
        HeaderWord.DATA_CRC: zlib.crc32(data) if checked else 0,
    }
    content = bytearray(size)
    for word, value in words.items():
        WORD.pack_into(content, 8 * word, value)
    content[JOB_OFFSET : JOB_OFFSET + len(JOB)] = JOB.encode()
    content[HEADER_SIZE : HEADER_SIZE + len(layout)] = layout
    content[state_offset : state_offset + len(state)] = state
    content[data_offset : data_offset + len(data)] = data
    return bytes(content)


def write_slot(
    shm: Path,
    rank: int,
    slot: int,
    step: int,
    attempt: int = 0,
    data: bytes = b"",
    *,
    room: str = OWN_DIRECTORY,
    checked: bool = True,
) -> Path:
    """Put a sealed slot where a node has it."""
    directory = shm / room
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / slot_name(rank, slot)
    path.write_bytes(slot_bytes(rank, step, attempt, data, checked=checked))
    return path


def set_word(path: Path, word: HeaderWord, value: int) -> None:
    """Store a header's word."""
    with path.open("r+b") as file:
        file.seek(8 * word)
        file.write(WORD.pack(value))


def data_of(path: Path) -> tuple[int | None, bytes]:
    """Sealed step and data of a slot."""
    content = path.read_bytes()
    header = parse_header(content)
    assert header is not None
    return header.sealed_step, content[header.data_offset : header.data_offset + header.data_size]
