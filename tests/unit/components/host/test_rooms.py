"""Room on file systems, also on those that don't answer."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast_sidecar.components.host.storage import RoomsProbe, read_room


@pytest.fixture
def dead_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """statvfs below a path with "dead" in it waits until this is set."""
    answers = threading.Event()
    real = os.statvfs

    def statvfs(path: Path) -> os.statvfs_result:
        if str(path).endswith("/dead"):
            assert answers.wait(30)
        return real(path)

    monkeypatch.setattr(os, "statvfs", statvfs)
    yield answers
    answers.set()


def test_room_of_a_directory_that_is_not_made_yet_is_its_parents(tmp_path: Path) -> None:
    room = read_room(tmp_path / "not" / "yet")
    assert room is not None
    assert room.size_bytes == os.statvfs(tmp_path).f_blocks * os.statvfs(tmp_path).f_frsize


def test_a_file_system_that_makes_inodes_as_it_needs_them_has_no_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = os.statvfs_result((4096, 4096, 9, 8, 7, 0, 0, 0, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda _: facts)
    room = read_room(tmp_path)
    assert room is not None
    assert (room.files, room.files_available) == (None, None)


def test_a_dead_server_silences_its_own_room_alone_until_it_answers(
    tmp_path: Path, dead_server: threading.Event
) -> None:
    (tmp_path / "dead").mkdir()
    probe = RoomsProbe({"checkpoint": tmp_path / "dead", "shm": tmp_path}, deadline_s=0.05)
    threads = threading.active_count()
    read = probe.read(100.0)
    assert (set(read.rooms), read.silent) == ({"shm"}, {"checkpoint": 0.0})
    read = probe.read(120.0)
    assert (set(read.rooms), read.silent) == ({"shm"}, {"checkpoint": 20.0})
    assert threading.active_count() == threads + 2, "nobody asks a second time"
    dead_server.set()
    probe._patients["checkpoint"]._answers.put(probe._patients["checkpoint"]._answers.get())
    read = probe.read(130.0)
    assert (set(read.rooms), read.silent) == ({"shm", "checkpoint"}, {})


def test_a_room_that_refuses_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "statvfs", refuse)
    read = RoomsProbe({"shm": tmp_path}).read(0.0)
    assert (read.rooms, read.silent) == ({}, {})
