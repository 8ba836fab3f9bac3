from __future__ import annotations

import errno
import fcntl
import os
import stat
from pathlib import Path

import pytest
from tests.unit.checkpoint.snapshot.slots import SIZE, filled, store

from holdfast.contract.snapshot_file import HeaderWord
from holdfast_sidecar.checkpoint.snapshot.files import (
    SlotBusy,
    arrange_slots,
    make_slot,
    read_slots,
    remove_slots,
)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    made = tmp_path / "snapshots"
    made.mkdir()
    return made


def steps(directory: Path) -> dict[str, int]:
    return {one.path.name: one.sealed_step for one in read_slots(directory)}


def contents(path: Path) -> bytes:
    slot = next(one for one in read_slots(path.parent) if one.path == path)
    at, size = slot.header.data_offset, slot.header.data_size
    return path.read_bytes()[at : at + size]


def no_more_memory(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_slot_is_whole_private_and_empty(directory: Path) -> None:
    path = make_slot(directory, 3, 1, SIZE, "job")
    facts = path.stat()
    assert stat.S_IMODE(facts.st_mode) == 0o600
    assert (facts.st_size, facts.st_blocks * 512 >= SIZE) == (SIZE, True)
    (slot,) = read_slots(directory)
    assert (slot.rank, slot.slot, slot.sealed_step) == (3, 1, -1)
    assert (slot.header.file_size, slot.header.job) == (SIZE, "job")


def test_what_could_not_be_made_leaves_nothing(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "posix_fallocate", no_more_memory)
    with pytest.raises(OSError, match="No space left"):
        make_slot(directory, 0, 0, SIZE, "job")
    assert list(directory.iterdir()) == []


def test_what_is_no_slot_is_left_out(directory: Path) -> None:
    make_slot(directory, 0, 0, SIZE, "job")
    (directory / "rank-0-slot-0").rename(directory / "rank-1-slot-0")  # another rank's
    os.truncate(make_slot(directory, 2, 0, SIZE, "job"), SIZE - 1)
    (directory / "rank-3-slot-0").write_bytes(bytes(SIZE))
    (directory / "rank-4-slot-0").symlink_to(make_slot(directory, 5, 0, SIZE, "job"))
    (directory / "rank-x").touch()
    assert list(steps(directory)) == ["rank-5-slot-0"]
    assert read_slots(directory / "absent") == []


def test_slots_are_made_once(directory: Path) -> None:
    assert arrange_slots(directory, 0, SIZE, 3, -1, "job")
    assert steps(directory) == {f"rank-0-slot-{n}": -1 for n in range(3)}
    assert not arrange_slots(directory, 0, SIZE - 100, 3, -1, "job")


def test_the_ranks_directory_is_private(tmp_path: Path) -> None:
    arrange_slots(tmp_path / "snapshots", 0, SIZE, 1, -1, "job")
    assert stat.S_IMODE((tmp_path / "snapshots").stat().st_mode) == 0o700


def test_what_is_large_enough_is_left_as_it_is(directory: Path) -> None:
    kept = filled(directory, 0, 0, step=7)
    inode = kept.stat().st_ino
    arrange_slots(directory, 0, SIZE, 3, 7, "job")
    assert kept.stat().st_ino == inode
    assert steps(directory) == {"rank-0-slot-0": 7, "rank-0-slot-1": -1, "rank-0-slot-2": -1}


def test_a_larger_slot_takes_over_what_the_smaller_one_held(directory: Path) -> None:
    filled(directory, 0, 0, step=7, data=b"seven")
    filled(directory, 0, 1, step=8, data=b"eight")
    make_slot(directory, 0, 2, SIZE, "job")
    arrange_slots(directory, 0, 2 * SIZE, 3, 7, "job")
    assert steps(directory) == {"rank-0-slot-0": 7, "rank-0-slot-1": 8, "rank-0-slot-2": -1}
    assert {one.header.file_size for one in read_slots(directory)} == {2 * SIZE}
    assert contents(directory / "rank-0-slot-0") == b"seven"
    assert contents(directory / "rank-0-slot-1") == b"eight"


@pytest.mark.parametrize("size", [SIZE, 2 * SIZE])
def test_with_fewer_slots_the_step_that_all_ranks_have_stays(directory: Path, size: int) -> None:
    filled(directory, 0, 0, step=9, data=b"nine")
    filled(directory, 0, 1, step=7, data=b"seven")
    filled(directory, 0, 2, step=8, data=b"eight")
    arrange_slots(directory, 0, size, 2, 8, "job")
    assert steps(directory) == {"rank-0-slot-0": 9, "rank-0-slot-1": 8}
    assert contents(directory / "rank-0-slot-1") == b"eight"
    arrange_slots(directory, 0, size, 1, 8, "job")
    assert steps(directory) == {"rank-0-slot-0": 8}
    assert contents(directory / "rank-0-slot-0") == b"eight"


def test_no_slots_leave_nothing(directory: Path) -> None:
    filled(directory, 0, 0, step=9)
    assert arrange_slots(directory, 0, SIZE, 0, 9, "job")
    assert steps(directory) == {}


def test_a_slot_that_is_being_written_is_left_alone(directory: Path) -> None:
    path = filled(directory, 0, 0, step=9)
    with path.open("rb") as writer:
        fcntl.flock(writer, fcntl.LOCK_EX)
        with pytest.raises(SlotBusy):
            arrange_slots(directory, 0, 2 * SIZE, 2, 9, "job")
        with pytest.raises(SlotBusy):
            remove_slots(read_slots(directory))
        assert steps(directory) == {"rank-0-slot-0": 9}
    with path.open("rb") as reader:
        fcntl.flock(reader, fcntl.LOCK_SH)
        assert arrange_slots(directory, 0, 2 * SIZE, 2, 9, "job")


def test_no_room_for_the_larger_one_leaves_the_smaller_one(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(directory, 0, 0, step=9)
    monkeypatch.setattr(os, "posix_fallocate", no_more_memory)
    with pytest.raises(OSError, match="No space left"):
        arrange_slots(directory, 0, 2 * SIZE, 2, 9, "job")
    assert steps(directory) == {"rank-0-slot-0": 9}


def test_other_ranks_slots_are_not_touched(directory: Path) -> None:
    filled(directory, 1, 5, step=3)
    arrange_slots(directory, 0, SIZE, 1, -1, "job")
    assert steps(directory) == {"rank-0-slot-0": -1, "rank-1-slot-5": 3}


def test_a_torn_slot_says_so(directory: Path) -> None:
    store(filled(directory, 0, 0, step=9), HeaderWord.SEALED, 0)
    assert steps(directory) == {"rank-0-slot-0": -1}
