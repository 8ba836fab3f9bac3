"""Limits, use and throttling of control groups, both versions, from frozen trees."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast_sidecar.components.host.cpu import parse_quota, read_group

V2 = "30 20 0:26 / {} rw,nosuid - cgroup2 cgroup2 rw\n"
V1 = (
    "25 20 0:22 / {}/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
    "26 20 0:23 / {}/memory rw - cgroup cgroup rw,memory\n"
    "27 20 0:24 / {}/unified rw - cgroup2 cgroup2 rw\n"
)


def tree(root: Path, mounts: str, cgroups: str, files: dict[str, str]) -> Path:
    groups = root / "cgroup"
    written = {f"cgroup/{name}": text for name, text in files.items()}
    written["proc/self/mountinfo"] = mounts.replace("{}", str(groups))
    written["proc/7/cgroup"] = cgroups
    for name, text in written.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root / "proc"


V2_FILES = {
    "pod/memory.max": "1000\n",
    "pod/memory.current": "900\n",
    "pod/memory.stat": "anon 500\ninactive_file 100\nactive_file 50\nslab_reclaimable 10\n",
    "pod/job/memory.max": "max\n",
    "pod/job/memory.current": "400\n",
    "pod/job/memory.stat": "inactive_file 0\n",
    "pod/job/memory.pressure": "some avg10=2.00 total=1\nfull avg10=1.00 total=1\n",
    "pod/job/cpu.max": "200000 100000\n",
    "pod/job/cpu.stat": "usage_usec 9\nnr_periods 40\nnr_throttled 10\nthrottled_usec 2500000\n",
    "pod/cpu.max": "max 100000\n",
}


def test_version_2_tells_the_limit_with_the_least_left_and_the_tightest_quota(
    tmp_path: Path,
) -> None:
    group = read_group(tree(tmp_path, V2, "0::/pod/job\n", V2_FILES), 7)
    assert (group.memory_limit_bytes, group.memory_used_bytes) == (1000, 740)
    assert (group.cpu_limit, group.periods, group.throttled_periods) == (2.0, 40, 10)
    assert (group.throttled_s, group.memory_stalled_10s_ratio) == (2.5, 0.01)


def test_version_1_tells_the_same(tmp_path: Path) -> None:
    files = {
        "memory/job/memory.limit_in_bytes": "1000\n",
        "memory/job/memory.usage_in_bytes": "700\n",
        "memory/job/memory.stat": "total_inactive_file 100\ntotal_active_file 50\n",
        "cpu/job/cpu.cfs_quota_us": "50000\n",
        "cpu/job/cpu.cfs_period_us": "100000\n",
        "cpu/job/cpu.stat": "nr_periods 8\nnr_throttled 2\nthrottled_time 1500000000\n",
    }
    cgroups = "5:cpu,cpuacct:/job\n4:memory:/job\n0::/\n"
    group = read_group(tree(tmp_path, V1, cgroups, files), 7)
    assert (group.memory_limit_bytes, group.memory_used_bytes) == (1000, 550)
    assert (group.cpu_limit, group.periods, group.throttled_periods) == (0.5, 8, 2)
    assert (group.throttled_s, group.memory_stalled_10s_ratio) == (1.5, None)


def test_without_limits_nothing_is_said_of_them(tmp_path: Path) -> None:
    files = {
        "memory/memory.limit_in_bytes": "9223372036854771712\n",
        "memory/memory.usage_in_bytes": "700\n",
        "cpu/cpu.cfs_quota_us": "-1\n",
        "cpu/cpu.cfs_period_us": "100000\n",
        "cpu/cpu.stat": "nr_periods 0\nnr_throttled 0\nthrottled_time 0\n",
    }
    group = read_group(tree(tmp_path, V1, "5:cpu:/\n4:memory:/\n", files), 7)
    assert (group.memory_limit_bytes, group.memory_used_bytes) == (None, 700)
    assert (group.cpu_limit, group.periods, group.throttled_s) == (None, None, None)


def test_garbage_and_groups_that_vanish_are_absent(tmp_path: Path) -> None:
    broken = dict.fromkeys(V2_FILES, "-5 what\n\x00")
    group = read_group(tree(tmp_path, V2, "0::/pod/job\nnonsense\n", broken), 7)
    assert group == type(group)()
    assert read_group(tmp_path / "nowhere", 7) == type(group)()


@pytest.mark.parametrize(
    ("text", "cores"),
    [("150000 100000", 1.5), ("max 100000", None), ("-1 100000", None), ("1 0", None), ("", None)],
)
def test_a_quota_is_told_in_cores(text: str, cores: float | None) -> None:
    assert parse_quota(text) == cores
