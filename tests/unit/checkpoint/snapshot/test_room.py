from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from holdfast_sidecar.checkpoint.snapshot.slots import RoomReader, free_in_groups, parse_available
from holdfast_sidecar.policy.replication import Margin

MIB = 2**20


def group(root: Path, files: dict[str, str]) -> None:
    root.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (root / name).write_text(text)


@pytest.fixture
def process(tmp_path: Path) -> Path:
    """Our own directory of a /proc, in a control group with a limit, whose path is not visible."""
    mounts = f"30 20 0:26 / {tmp_path}/groups rw - cgroup2 cgroup2 rw\n"
    group(tmp_path / "self", {"cgroup": "0::/slurm/job_7\n", "mountinfo": mounts})
    group(tmp_path / "groups", {"memory.max": "1000000", "memory.current": "900000"})
    return tmp_path / "self"


def test_available_memory_is_read_in_bytes() -> None:
    assert parse_available("MemTotal: 16 kB\nMemAvailable:    2048 kB\n") == 2 * MIB
    assert parse_available("MemTotal: 16 kB\n") == 0


def test_what_the_control_groups_leave_is_room(process: Path) -> None:
    assert free_in_groups(process) == 100_000


def test_a_machine_without_control_groups_has_no_limit(tmp_path: Path) -> None:
    assert free_in_groups(tmp_path / "absent") is None


@pytest.mark.usefixtures("process")
def test_what_snapshots_hold_already_is_room_for_snapshots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "meminfo").write_text("MemAvailable: 1000 kB\n")
    facts = SimpleNamespace(f_blocks=10_000, f_bavail=700, f_frsize=4096)
    monkeypatch.setattr(os, "statvfs", lambda _: facts)
    room = RoomReader(tmp_path, MIB, tmp_path).read(held_bytes=5000)
    assert room.shared_memory == 700 * 4096 + 5000 - MIB
    assert (room.memory, room.control_group) == (1_029_000, 105_000)


def test_what_is_left_to_the_job_is_what_the_kernel_can_give_before_it_kills(
    tmp_path: Path, process: Path
) -> None:
    (tmp_path / "meminfo").write_text("MemTotal: 9000 kB\nMemAvailable: 1000 kB\n")
    reader = RoomReader(tmp_path, MIB, tmp_path)
    assert reader.read_margin() == Margin(100_000, 1_000_000)
    (tmp_path / "groups" / "memory.stat").write_text("anon 1\nactive_file 50000\n")
    assert reader.read_margin() == Margin(150_000, 1_000_000)
    (process / "cgroup").unlink()
    assert reader.read_margin() == Margin(1_024_000, 9_216_000)
    (tmp_path / "meminfo").write_text("MemTotal: 9000 kB\n")
    assert reader.read_margin() is None


def test_this_machine_can_be_read(tmp_path: Path) -> None:
    assert RoomReader(tmp_path, 0).read_margin() is not None
    assert RoomReader(tmp_path, 0).read(0).least > 0
