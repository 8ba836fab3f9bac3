"""What control groups allow a process of memory, both versions, from frozen trees."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast_sidecar.linux.cgroups import (
    AT_ONCE,
    BEFORE_ANYBODY_IS_KILLED,
    CgroupPlace,
    GroupMemory,
    find_places,
    parse_mounts,
    read_memory,
)

MOUNTS = (
    "26 20 0:23 / /old/memory rw - cgroup cgroup rw,memory\n"
    "27 20 0:24 / /new rw - cgroup2 cgroup2 rw\n"
)


def group(directory: Path, files: dict[str, str], is_unified: bool = True) -> CgroupPlace:
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (directory / name).write_text(text)
    return CgroupPlace(directory, is_unified)


@pytest.mark.parametrize(
    ("cgroups", "places"),
    [
        ("0::/slice/job\n", ["/new/slice/job", "/new/slice", "/new"]),
        ("0::/\n", ["/new"]),
        ("5:cpu,memory:/docker\n4:pids:/x\n", ["/old/memory/docker", "/old/memory"]),
        ("1:name=systemd:/a:b\n9:memory:/c:d\n0::/\n", ["/old/memory/c:d", "/old/memory", "/new"]),
        ("", []),
        ("nonsense\n", []),
    ],
)
def test_the_groups_that_limit_memory_are_found(cgroups: str, places: list[str]) -> None:
    found = find_places("memory", cgroups, parse_mounts(MOUNTS))
    assert [str(place.directory) for place in found] == places


def test_the_group_with_the_least_left_counts(tmp_path: Path) -> None:
    places = [
        group(tmp_path / "a/b", {"memory.max": "800", "memory.current": "100"}),
        group(tmp_path / "a", {"memory.max": "1000", "memory.current": "900", "memory.stat": ""}),
    ]
    memory = read_memory(places, AT_ONCE)
    assert (memory, memory.free_bytes) == (GroupMemory(1000, 900), 100)


def test_what_is_given_back_is_not_taken(tmp_path: Path) -> None:
    stat = "anon 300\nfile 500\ninactive_file 400\nactive_file 30\nslab_reclaimable 2\n"
    place = group(tmp_path, {"memory.max": "1000", "memory.current": "900", "memory.stat": stat})
    assert read_memory([place], AT_ONCE).free_bytes == 500
    assert read_memory([place], BEFORE_ANYBODY_IS_KILLED).free_bytes == 532


def test_version_1_is_read_too(tmp_path: Path) -> None:
    files = {
        "memory.limit_in_bytes": "1000\n",
        "memory.usage_in_bytes": "700\n",
        "memory.stat": "inactive_file 1\ntotal_inactive_file 200\ntotal_active_file 30\n",
    }
    place = group(tmp_path, files, is_unified=False)
    assert read_memory([place], AT_ONCE).free_bytes == 500
    assert read_memory([place], BEFORE_ANYBODY_IS_KILLED).free_bytes == 530


@pytest.mark.parametrize("limit", ["max", str(2**63 - 4096)])
def test_no_limit_is_no_limit(limit: str, tmp_path: Path) -> None:
    place = group(tmp_path, {"memory.max": limit, "memory.current": "900"})
    memory = read_memory([place], AT_ONCE)
    assert (memory, memory.free_bytes) == (GroupMemory(None, 900), None)


def test_garbage_and_groups_that_are_gone_tell_nothing(tmp_path: Path) -> None:
    broken = group(tmp_path, {"memory.max": "-5 what", "memory.current": "\x00"})
    places = [broken, CgroupPlace(tmp_path / "gone", is_unified=True)]
    assert read_memory(places, AT_ONCE) == GroupMemory()
