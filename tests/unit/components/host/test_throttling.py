"""Throttling of ranks that are in control groups of their own, from frozen trees."""

from __future__ import annotations

from pathlib import Path

from tests.unit.components.host.test_cgroup import V1, V2, tree

from holdfast_sidecar.components.host.cpu import FOUND_AGAIN_S, ThrottlingProbe


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def test_each_rank_is_told_of_the_quota_that_holds_it(tmp_path: Path) -> None:
    files = {
        "job/cpu.max": "max 100000\n",
        "job/slow/cpu.max": "50000 100000\n",
        "job/slow/cpu.stat": "nr_periods 9\nthrottled_usec 2500000\n",
    }
    proc = tree(tmp_path, V2, "0::/job/slow\n", files)
    write(tmp_path, {"proc/8/cgroup": "0::/job\n"})
    probe = ThrottlingProbe(lambda: {3: 7, 4: 8, 5: 9}, proc)
    assert probe.read(0.0) == {3: 2.5}
    write(tmp_path, {"cgroup/job/slow/cpu.stat": "throttled_usec 3000000\n"})
    assert probe.read(1.0) == {3: 3.0}


def test_version_1_tells_the_same(tmp_path: Path) -> None:
    files = {
        "cpu/job/cpu.cfs_quota_us": "50000\n",
        "cpu/job/cpu.cfs_period_us": "100000\n",
        "cpu/job/cpu.stat": "nr_periods 8\nthrottled_time 1500000000\n",
    }
    proc = tree(tmp_path, V1, "3:cpu,cpuacct:/job\n0::/job\n", files)
    assert ThrottlingProbe(lambda: {0: 7}, proc).read(0.0) == {0: 1.5}


def test_a_quota_that_is_set_while_a_rank_runs_is_noticed_soon(tmp_path: Path) -> None:
    files = {"job/cpu.max": "max 100000\n", "job/cpu.stat": "throttled_usec 0\n"}
    proc = tree(tmp_path, V2, "0::/job\n", files)
    pids = {0: 7}
    probe = ThrottlingProbe(lambda: pids, proc)
    assert probe.read(0.0) == {}
    write(tmp_path, {"cgroup/job/cpu.max": "50000 100000\n"})
    assert probe.read(FOUND_AGAIN_S) == {0: 0.0}
    pids.clear()
    assert probe.read(FOUND_AGAIN_S + 1) == {}
