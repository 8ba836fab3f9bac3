from __future__ import annotations

import fcntl
import zlib
from pathlib import Path

import pytest
from tests.unit.checkpoint.snapshot.slots import filled, seal, store

from holdfast.contract.snapshot_file import HeaderWord
from holdfast_sidecar.checkpoint.snapshot import files
from holdfast_sidecar.checkpoint.snapshot.files import (
    Checking,
    ReadRate,
    SlotFile,
    check_slot,
    choose,
    read_slots,
)

S = 10**9


def slot(directory: Path, number: int = 0) -> SlotFile:
    return next(one for one in read_slots(directory) if one.slot == number)


def no_pause(used_s: float) -> None:
    assert used_s >= 0


def test_a_sealed_slot_gets_its_checksum(tmp_path: Path) -> None:
    path = filled(tmp_path, 0, 0, step=7, data=b"weights")
    assert slot(tmp_path).header.data_crc is None
    assert check_slot(path, slot(tmp_path).header, no_pause)
    assert slot(tmp_path).header.data_crc == zlib.crc32(b"weights")


def test_what_is_longer_than_one_piece_is_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "CHUNK_BYTES", 100)
    data = bytes(range(256)) * 3
    path = filled(tmp_path, 0, 0, step=7, data=data)
    pieces: list[float] = []
    assert check_slot(path, slot(tmp_path).header, pieces.append)
    assert slot(tmp_path).header.data_crc == zlib.crc32(data)
    assert len(pieces) == 8


@pytest.mark.parametrize("step", [8, 7], ids=["another step", "the same step once more"])
def test_a_slot_that_is_overwritten_meanwhile_gets_none(tmp_path: Path, step: int) -> None:
    path = filled(tmp_path, 0, 0, step=7)

    def overwritten(_: float) -> None:
        seal(path, step, data=b"sthgiew", sealed_ns=1)

    assert not check_slot(path, slot(tmp_path).header, overwritten)
    assert slot(tmp_path).header.data_crc is None


def test_a_slot_that_is_torn_meanwhile_gets_none(tmp_path: Path) -> None:
    path = filled(tmp_path, 0, 0, step=7)
    before = slot(tmp_path).header
    store(path, HeaderWord.SEALED, 0)
    assert not check_slot(path, before, no_pause)


def test_nothing_is_stored_while_a_rank_has_the_slot(tmp_path: Path) -> None:
    path = filled(tmp_path, 0, 0, step=7)
    with path.open("rb") as writer:
        fcntl.flock(writer, fcntl.LOCK_EX)
        assert not check_slot(path, slot(tmp_path).header, no_pause)
    assert slot(tmp_path).header.data_crc is None


def test_a_rank_that_comes_to_write_never_finds_its_slot_taken_while_it_is_read(
    tmp_path: Path,
) -> None:
    path = filled(tmp_path, 0, 0, step=7)
    could: list[bool] = []

    def try_to_write(_: float) -> None:
        with path.open("rb") as writer:
            fcntl.flock(writer, fcntl.LOCK_EX | fcntl.LOCK_NB)
            could.append(True)

    check_slot(path, slot(tmp_path).header, try_to_write)
    assert could == [True]


def test_the_newest_slot_comes_first_and_none_twice(tmp_path: Path) -> None:
    for number, step in enumerate((7, 9, 8)):
        seal(filled(tmp_path, 0, number, step), step, sealed_ns=0)
    read = []
    while (chosen := choose(read_slots(tmp_path), ReadRate(1e9), 10 * S)) is not None:
        read.append(chosen.sealed_step)
        check_slot(chosen.path, chosen.header, no_pause)
    assert read == [9, 8, 7]


def test_what_turns_over_faster_than_it_can_be_read_is_not_begun(tmp_path: Path) -> None:
    seal(filled(tmp_path, 0, 0, step=7), 7, data=bytes(100), sealed_ns=5 * S)
    slow = ReadRate(bytes_per_s=25)  # four seconds
    assert choose(read_slots(tmp_path), slow, 8 * S) is None
    assert choose(read_slots(tmp_path), slow, 9 * S) is not None


def test_empty_slots_are_not_read(tmp_path: Path) -> None:
    store(filled(tmp_path, 0, 0, step=7), HeaderWord.SEALED, 0)
    assert choose(read_slots(tmp_path), ReadRate(), 10 * S) is None


def test_a_slot_that_is_gone_is_no_error(tmp_path: Path) -> None:
    path = filled(tmp_path, 0, 0, step=7)
    gone = slot(tmp_path)
    path.unlink()
    Checking()._check(gone)


def test_a_node_without_slots_has_no_thread() -> None:
    idle = Checking()
    idle.show([])
    assert idle._thread is None
    idle.stop()


def test_the_pauses_keep_it_to_a_twentieth_of_a_core(monkeypatch: pytest.MonkeyPatch) -> None:
    checker = Checking()
    waited: list[float] = []
    monkeypatch.setattr(checker._stopping, "wait", waited.append)
    checker._pause(0.002)
    assert waited == [pytest.approx(0.038)]
