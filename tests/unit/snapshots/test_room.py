from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from holdfast_sidecar.snapshots.room import (
    RoomReader,
    free_in_groups,
    parse_available,
    parse_membership,
)

MIB = 2**20


def group(root: Path, files: dict[str, str]) -> None:
    root.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (root / name).write_text(text)


@pytest.fixture
def membership(tmp_path: Path) -> Path:
    return tmp_path / "cgroup"


def test_available_memory_is_read_in_bytes() -> None:
    assert parse_available("MemTotal: 16 kB\nMemAvailable:    2048 kB\n") == 2 * MIB
    assert parse_available("MemTotal: 16 kB\n") == 0


@pytest.mark.parametrize(
    ("text", "groups"),
    [
        ("0::/system.slice/job\n", [("v2", "/system.slice/job")]),
        ("0::/\n", [("v2", "/")]),
        ("5:cpu,memory:/docker/ab\n4:pids:/x\n", [("v1", "/docker/ab")]),
        ("1:name=systemd:/a:b\n9:memory:/c:d\n0::/e\n", [("v1", "/c:d"), ("v2", "/e")]),
        ("", []),
        ("nonsense\n", []),
    ],
)
def test_the_groups_that_limit_memory_are_found(text: str, groups: list[tuple[str, str]]) -> None:
    assert parse_membership(text) == groups


def test_the_tightest_group_above_counts(membership: Path, tmp_path: Path) -> None:
    membership.write_text("0::/slurm/job_7\n")
    root = tmp_path / "groups"
    group(root / "slurm", {"memory.max": "1000", "memory.current": "900", "memory.stat": ""})
    group(root / "slurm/job_7", {"memory.max": "800", "memory.current": "100"})
    assert free_in_groups(membership, root) == 100


def test_a_cache_of_files_counts_as_free(membership: Path, tmp_path: Path) -> None:
    membership.write_text("0::/\n")
    root = tmp_path / "groups"
    stat = "anon 300\nfile 500\ninactive_file 400\n"
    group(root, {"memory.max": "1000", "memory.current": "900", "memory.stat": stat})
    assert free_in_groups(membership, root) == 500


def test_version_1_is_read_too(membership: Path, tmp_path: Path) -> None:
    membership.write_text("4:memory:/docker/ab\n3:cpu:/docker/ab\n")
    files = {
        "memory.limit_in_bytes": "1000\n",
        "memory.usage_in_bytes": "700\n",
        "memory.stat": "inactive_file 1\ntotal_inactive_file 200\n",
    }
    # In a container the path of the host is not visible: the files lie at the root.
    group(tmp_path / "groups" / "memory", files)
    assert free_in_groups(membership, tmp_path / "groups") == 500


@pytest.mark.parametrize("limit", ["max", str(2**63 - 4096)])
def test_no_limit_is_no_limit(limit: str, membership: Path, tmp_path: Path) -> None:
    membership.write_text("0::/\n")
    group(tmp_path, {"memory.max": limit, "memory.current": "900"})
    assert free_in_groups(membership, tmp_path) is None


def test_a_machine_without_control_groups_has_no_limit(tmp_path: Path) -> None:
    assert free_in_groups(tmp_path / "absent", tmp_path) is None


def test_what_snapshots_hold_already_is_room_for_snapshots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "self").mkdir()
    (tmp_path / "self/cgroup").write_text("0::/\n")
    (tmp_path / "meminfo").write_text("MemAvailable: 1000 kB\n")
    group(tmp_path / "groups", {"memory.max": "1000000", "memory.current": "900000"})
    monkeypatch.setattr(
        os, "statvfs", lambda _: SimpleNamespace(f_blocks=1000, f_bavail=700, f_frsize=4096)
    )
    room = RoomReader(tmp_path, MIB, tmp_path, tmp_path / "groups").read(held_bytes=5000)
    assert room.shared_memory == 700 * 4096 + 5000 - MIB
    assert (room.memory, room.control_group) == (1_029_000, 105_000)


def test_this_machine_can_be_read(tmp_path: Path) -> None:
    assert RoomReader(tmp_path, 0).read(0).least > 0
