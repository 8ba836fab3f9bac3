from __future__ import annotations

import fcntl
import os
import zlib
from pathlib import Path

import pytest
from tests.unit.checkpoint.replication.slots import JOB, data_of, set_word, slot_bytes, write_slot

from holdfast.contract.snapshot_file import HEADER_SIZE, HeaderWord, parse_header
from holdfast_sidecar.checkpoint.replication.slots import (
    Expected,
    SlotCopy,
    SlotInUse,
    clear,
    holding,
    is_plausible,
    parse_expected,
    sealed_slots,
    zones,
)
from holdfast_sidecar.checkpoint.replication.wire import ProtocolError


def begin(path: Path, content: bytes) -> SlotCopy:
    header = parse_header(content)
    assert header is not None
    return SlotCopy(path, header, content[:HEADER_SIZE])


def fill(copy: SlotCopy, content: bytes) -> int:
    header = parse_header(content)
    assert header is not None
    plain, data = zones(header)
    for offset, size in (plain, data):
        copy.write(offset, memoryview(content)[offset : offset + size])
    return zlib.crc32(content[data[0] : data[0] + data[1]])


def test_a_copy_is_torn_until_it_is_whole(tmp_path: Path) -> None:
    path, content = tmp_path / "rank-3-slot-0", slot_bytes(3, 7, data=b"weights" * 999)
    copy = begin(path, content)
    assert sealed_slots(tmp_path) == []
    crc = fill(copy, content)
    assert sealed_slots(tmp_path) == []
    copy.seal(crc)
    copy.close()
    (slot,) = sealed_slots(tmp_path)
    assert (slot.header.sealed_step, slot.header.rank, slot.header.data_crc) == (7, 3, crc)
    assert data_of(path) == (7, b"weights" * 999)
    assert path.stat().st_mode & 0o777 == 0o600


def test_an_older_copy_is_torn_first_and_its_file_used_again(tmp_path: Path) -> None:
    path, new = tmp_path / "rank-3-slot-0", slot_bytes(3, 9, data=b"new")
    path.write_bytes(slot_bytes(3, 7, data=b"old"))
    inode = path.stat().st_ino
    begin(path, new).close()
    assert sealed_slots(tmp_path) == []
    assert path.stat().st_ino == inode


def test_a_file_of_another_size_is_replaced_not_cut(tmp_path: Path) -> None:
    path = tmp_path / "rank-3-slot-0"
    path.write_bytes(slot_bytes(3, 7, data=b"x" * 99_999))
    with path.open("rb") as mapped:
        begin(path, slot_bytes(3, 9, data=b"new")).close()
        assert os.fstat(mapped.fileno()).st_size > path.stat().st_size


def test_what_is_being_read_is_not_overwritten(tmp_path: Path) -> None:
    path, content = tmp_path / "rank-3-slot-0", slot_bytes(3, 7, data=b"old")
    path.write_bytes(content)
    with holding(path, 0, 7) as held:
        assert held is not None
        with pytest.raises(SlotInUse):
            begin(path, slot_bytes(3, 9, data=b"new"))
    assert data_of(path) == (7, b"old")


def test_what_is_being_written_is_not_read(tmp_path: Path) -> None:
    path = write_slot(tmp_path, 3, 0, 7, data=b"old")
    with path.open("r+b") as writer:
        fcntl.flock(writer, fcntl.LOCK_EX)
        with holding(path, 0, 7) as held:
            assert held is None
    with holding(path, 0, 7) as held:
        assert held is not None
        set_word(path, HeaderWord.SEALED, 9)
        assert not held.is_still_sealed()


def test_a_state_that_does_not_fit_its_checksum_is_not_sealed(tmp_path: Path) -> None:
    content = bytearray(slot_bytes(3, 7, data=b"weights"))
    header = parse_header(bytes(content))
    assert header is not None
    content[header.state_offset] ^= 1
    copy = begin(tmp_path / "rank-3-slot-0", bytes(content))
    crc = fill(copy, bytes(content))
    with pytest.raises(ProtocolError, match="checksum"):
        copy.seal(crc)
    copy.close()
    assert sealed_slots(tmp_path) == []


def test_without_room_nothing_is_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match="No space"):
        begin(tmp_path / "rank-3-slot-0", slot_bytes(3, 7))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "expected",
    [
        Expected("other", 3, 0, 7),
        Expected(JOB, 2, 0, 7),
        Expected(JOB, 3, 1, 7),
        Expected(JOB, 3, 0, 8),
    ],
    ids=["job", "rank", "attempt", "step"],
)
def test_what_was_not_asked_for_is_refused(expected: Expected) -> None:
    with pytest.raises(ProtocolError, match="another slot"):
        parse_expected(slot_bytes(3, 7)[:HEADER_SIZE], expected)


@pytest.mark.parametrize(
    ("word", "value"),
    [
        (HeaderWord.MAGIC, 0),
        (HeaderWord.LAYOUT_SIZE, 2**40),
        (HeaderWord.STATE_SIZE, 5000),
        (HeaderWord.STATE_CAPACITY, 2**63),
        (HeaderWord.DATA_SIZE, 2**50),
        (HeaderWord.DATA_OFFSET, 64),
        (HeaderWord.FILE_SIZE, 100),
    ],
)
def test_a_header_whose_zones_overlap_or_leave_the_file_is_refused(
    word: HeaderWord, value: int
) -> None:
    raw = bytearray(slot_bytes(3, 7, data=b"weights"))
    raw[8 * word : 8 * word + 8] = value.to_bytes(8, "little")
    header = parse_header(bytes(raw))
    assert header is None or not is_plausible(header)
    with pytest.raises(ProtocolError, match="no slot"):
        parse_expected(bytes(raw[:HEADER_SIZE]), Expected(JOB, 3, 0, 7))


def test_clearing_tears_exactly_what_was_meant(tmp_path: Path) -> None:
    path = write_slot(tmp_path, 3, 0, 7)
    assert clear(path, 0, 8)
    assert data_of(path)[0] == 7
    with holding(path, 0, 7):
        assert not clear(path, 0, 7)
    assert clear(path, 0, 7)
    assert data_of(path)[0] is None
    assert clear(tmp_path / "rank-9-slot-0", 0, 7)
