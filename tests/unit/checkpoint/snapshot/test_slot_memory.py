"""Memory of slots that a process holds: both twins, and what happens when somebody dies."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.checkpoint.snapshot.slots import SIZE, seal

from holdfast.contract.snapshot_file import MEMORY_NAME, open_slot_file, read_slot_facts
from holdfast.snapshots.slot import open_slot
from holdfast_sidecar.checkpoint.replication.slots import holding
from holdfast_sidecar.checkpoint.snapshot.files import (
    arrange_slots,
    make_slot,
    read_slots,
    remove_slots,
)
from holdfast_sidecar.checkpoint.snapshot.memory import HeldMemory, NamedFiles, SlotMemory
from holdfast_sidecar.launcher.ownership import sweep_slots
from holdfast_sidecar.launcher.sidecar_process import SlotHolder


@pytest.fixture
def shm(tmp_path: Path) -> Path:
    for name in ("snapshots", "copies"):
        (tmp_path / name).mkdir()
    return tmp_path


@pytest.fixture
def holder(shm: Path) -> Iterator[SlotHolder]:
    with SlotHolder(shm) as holder:
        yield holder


def reached(holder: SlotHolder) -> HeldMemory:
    """As by a sidecar that inherited the link."""
    assert holder.link is not None
    return HeldMemory(socket.socket(fileno=os.dup(holder.link)))


def held_by(holder: SlotHolder) -> int:
    """How many slots it holds."""
    assert holder._process is not None
    folder = Path(f"/proc/{holder._process.pid}/fd")
    return sum(MEMORY_NAME in os.readlink(path) for path in folder.iterdir())


@pytest.fixture(params=["held", "named"])
def memory(request: pytest.FixtureRequest, holder: SlotHolder) -> SlotMemory:
    return reached(holder) if request.param == "held" else NamedFiles()


def test_a_slot_is_made_read_grown_and_removed_alike(shm: Path, memory: SlotMemory) -> None:
    directory = shm / "snapshots"
    path = make_slot(directory, 0, 0, SIZE, "job", memory)
    seal(path, 7)
    (one,) = read_slots(directory)
    assert (one.sealed_step, one.header.file_size) == (7, SIZE)
    slot = open_slot(path)
    assert slot is not None
    assert slot.is_in_place()
    with holding(path, one.header.attempt, 7) as held:
        assert held is not None
        assert slot.begin() is None  # its lock is known by another opening, too
    assert arrange_slots(directory, 0, 2 * SIZE, 3, 7, "job", memory)
    assert sorted(one.sealed_step for one in read_slots(directory)) == [-1, -1, 7]
    assert not slot.is_in_place()
    writing = (open_slot(path) or slot).begin()
    assert writing is not None
    writing.let_go()
    remove_slots(read_slots(directory))
    assert list(directory.iterdir()) == []


def test_what_could_not_be_allocated_leaves_nothing(
    shm: Path, memory: SlotMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match="No space left"):
        make_slot(shm / "snapshots", 0, 0, SIZE, "job", memory)
    assert list((shm / "snapshots").iterdir()) == []


def test_held_memory_takes_no_room_among_files_and_goes_with_its_name(
    shm: Path, holder: SlotHolder
) -> None:
    memory = reached(holder)
    for number in range(3):
        path = make_slot(shm / "snapshots", 0, number, SIZE, "job", memory)
        assert path.is_symlink()
    assert held_by(holder) == 3
    make_slot(shm / "snapshots", 0, 2, SIZE, "job", memory)
    path.unlink()
    make_slot(shm / "copies", 4, 0, SIZE, "job", memory)
    assert held_by(holder) == 3


def test_held_memory_is_given_back_when_it_is_said(shm: Path, holder: SlotHolder) -> None:
    memory = reached(holder)
    make_slot(shm / "snapshots", 0, 0, SIZE, "job", memory).unlink()
    assert held_by(holder) == 1
    memory.give_back()
    assert held_by(holder) == 0
    memory._link.close()
    memory.give_back()  # its holder will look by itself


def test_it_outlives_the_sidecar_and_serves_the_next_one(shm: Path, holder: SlotHolder) -> None:
    first = reached(holder)
    seal(make_slot(shm / "snapshots", 0, 0, SIZE, "job", first), 7)
    first._link.send(b'{"token": "of one that died while it asked"}')
    first._link.close()
    second = reached(holder)
    make_slot(shm / "snapshots", 0, 1, SIZE, "job", second)
    assert [one.sealed_step for one in read_slots(shm / "snapshots")] == [7, -1]
    assert not second.has_names


def test_it_is_given_back_when_nobody_is_left(shm: Path) -> None:
    with SlotHolder(shm) as holder:
        memory = reached(holder)
        path = make_slot(shm / "snapshots", 0, 0, SIZE, "job", memory)
        assert holder._process is not None
    assert holder._process.poll() is None  # a sidecar is there yet, and may be saving
    assert read_slots(shm / "snapshots")
    memory._link.close()
    assert holder._process.wait(10) == 0
    assert read_slots(shm / "snapshots") == []
    with pytest.raises(FileNotFoundError):
        open_slot_file(path, os.O_RDWR)
    sweep_slots(shm)
    assert not path.is_symlink()


def test_signals_that_a_scheduler_sends_to_all_do_not_end_it(shm: Path, holder: SlotHolder) -> None:
    memory = reached(holder)
    make_slot(shm / "snapshots", 0, 0, SIZE, "job", memory)
    assert holder._process is not None
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        holder._process.send_signal(number)
    make_slot(shm / "snapshots", 0, 1, SIZE, "job", memory)
    assert len(read_slots(shm / "snapshots")) == 2


def test_files_take_its_place_where_it_died(shm: Path, holder: SlotHolder) -> None:
    memory = reached(holder)
    make_slot(shm / "snapshots", 0, 0, SIZE, "job", memory)
    assert holder._process is not None
    holder._process.kill()
    holder._process.wait()
    assert read_slots(shm / "snapshots") == []
    assert arrange_slots(shm / "snapshots", 0, SIZE, 2, -1, "job", memory)
    assert memory.has_names
    assert len(read_slots(shm / "snapshots")) == 2


def test_no_other_link_is_followed(shm: Path, tmp_path: Path, holder: SlotHolder) -> None:
    """Neither to a file, nor to what another process has open, be it a pipe."""
    path = shm / "snapshots" / "rank-0-slot-0"
    file = tmp_path / "precious"
    file.write_bytes(b"x" * SIZE)
    reading, writing = os.pipe()
    with file.open("rb") as stream:
        for target in (file, f"/proc/{os.getpid()}/fd/{stream.fileno()}", "/proc/self/mem"):
            path.symlink_to(target)
            with pytest.raises(OSError, match=r"symbolic links|nobody holds it"):
                open_slot_file(path, os.O_RDWR)
            path.unlink()
        path.symlink_to(f"/proc/{os.getpid()}/fd/{reading}")
        began_s = time.monotonic()
        with pytest.raises(FileNotFoundError):
            open_slot_file(path, os.O_RDONLY)
        assert time.monotonic() - began_s < 5  # not waited for a writer
        assert open_slot(path) is None
        assert read_slots(shm / "snapshots") == []
    os.close(reading)
    os.close(writing)
    assert file.read_bytes() == b"x" * SIZE


def test_a_name_tells_which_memory_it_leads_to(shm: Path, holder: SlotHolder) -> None:
    memory = reached(holder)
    path = make_slot(shm / "snapshots", 0, 0, SIZE, "job", memory)
    before = read_slot_facts(path)
    assert before.st_size == SIZE
    make_slot(shm / "snapshots", 0, 0, SIZE, "job", memory)
    assert read_slot_facts(path).st_ino != before.st_ino
