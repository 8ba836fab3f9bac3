"""The host as a frozen tree of /proc and /sys tells it, and as a broken one does."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdfast_sidecar.components.host.cpu import parse_pressure, parse_stat, read_pressures
from holdfast_sidecar.components.host.host import HostProbe
from holdfast_sidecar.components.host.memory import Memory, parse_meminfo, read_memory_errors
from holdfast_sidecar.components.host.readings import MemoryErrors
from holdfast_sidecar.linux.cgroups import parse_oom_kills
from holdfast_sidecar.linux.files import KernelTrees

MEMORY = """\
some avg10=12.50 avg60=3.00 avg300=1.00 total=2500000
full avg10=4.25 avg60=1.00 avg300=0.50 total=1000000
"""
IRQ = "full avg10=1.00 avg60=0.00 avg300=0.00 total=3000000\n"

FILES = {
    "proc/stat": "cpu  100 20 30 4000 50 0 0 7 0 0\ncpu0 1 1 1 1\nbtime 1700000000\n",
    "proc/meminfo": "MemTotal: 1000 kB\nMemFree: 1 kB\nMemAvailable: 600 kB\nSwapTotal: 50 kB\n"
    "SwapFree: 20 kB\nHugePages_Total:       0\n",
    "proc/loadavg": "1.50 1.00 0.50 2/345 6789\n",
    "proc/vmstat": "nr_free_pages 12\noom_kill 3\npgfault 9\n",
    "proc/pressure/memory": MEMORY,
    "proc/pressure/irq": IRQ,
    "proc/sys/kernel/hung_task_detect_count": "4\n",
    "proc/self/mountinfo": "30 20 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
    "sys/devices/system/edac/mc/mc0/ce_count": "5\n",
    "sys/devices/system/edac/mc/mc0/ue_count": "0\n",
    "sys/devices/system/edac/mc/mc1/ce_count": "2\n",
    "sys/devices/system/edac/mc/mc1/ue_count": "1\n",
    "sys/class/hwmon/hwmon0/name": "coretemp\n",
    "sys/class/hwmon/hwmon0/temp1_input": "61000\n",
    "sys/class/hwmon/hwmon0/temp1_crit": "100000\n",
    "sys/class/powercap/intel-rapl:0/name": "package-0\n",
    "sys/class/powercap/intel-rapl:0/energy_uj": "2500000\n",
    "sys/class/powercap/intel-rapl:0:0/name": "core\n",
    "sys/class/powercap/intel-rapl:0:0/energy_uj": "1500000\n",
    "sys/class/powercap/intel-rapl-mmio:0/name": "package-0\n",
    "sys/class/powercap/intel-rapl-mmio:0/energy_uj": "2400000\n",
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A machine of files."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def probe(root: Path, **paths: Path) -> HostProbe:
    return HostProbe(paths, KernelTrees(str(root)), own_proc=root / "proc")


def test_pressure_is_read_in_seconds_and_shares() -> None:
    pressure = parse_pressure(MEMORY)
    assert pressure is not None
    assert (pressure.waiting_s, pressure.stalled_s) == (2.5, 1.0)
    assert (pressure.waiting_10s_ratio, pressure.stalled_10s_ratio) == (0.125, 0.0425)


def test_cpu_pressure_of_older_kernels_has_no_full_line_and_that_of_interrupts_no_other() -> None:
    pressure = parse_pressure(MEMORY.splitlines()[0])
    assert pressure is not None
    assert pressure.stalled_s is None
    pressure = parse_pressure(IRQ)
    assert pressure is not None
    assert (pressure.waiting_s, pressure.stalled_s) == (None, 3.0)


@pytest.mark.parametrize(
    "text", ["", "\n\n", "some avg10=x total=1", "some total", "some avg10=1.0", "nonsense a=b"]
)
def test_a_kernel_without_psi_or_with_another_says_nothing_rather_than_zero(
    text: str, tmp_path: Path
) -> None:
    assert parse_pressure(text) is None
    assert read_pressures(tmp_path / "pressure") == {}


def test_a_frozen_tree_is_read(root: Path) -> None:
    reading = probe(root, shm=root).read(0.0)
    assert reading.cpu_s == {
        "user": 1.2, "system": 0.3, "idle": 40.0, "iowait": 0.5, "steal": 0.07
    }  # fmt: skip
    assert (reading.boot_unix_s, reading.load_1m) == (1.7e9, 1.5)
    assert reading.memory_size_bytes == 1000 * 1024
    assert reading.memory_available_bytes == 600 * 1024
    assert reading.swap_used_bytes == 30 * 1024
    assert set(reading.pressure) == {"memory", "irq"}
    assert (reading.oom_kills, reading.hung_tasks) == (3, 4)
    assert reading.rooms["shm"].size_bytes > 0
    assert reading.memory_errors is not None
    assert (reading.memory_errors.corrected, reading.memory_errors.uncorrected) == (7, 1)
    assert [(one.name, one.margin) for one in reading.sensors] == [("coretemp", 39.0)]
    assert reading.energy_j == {"package-0": 2.5}


def test_what_can_not_be_read_is_absent_and_the_rest_is_told(root: Path) -> None:
    for name in FILES:
        if name not in ("proc/stat", "proc/meminfo", "proc/loadavg"):
            (root / name).write_text("\x00garbage: -1 \xff\n")
    reading = probe(root).read(0.0)
    assert reading.memory_available_bytes == 600 * 1024
    assert (reading.pressure, reading.rooms, reading.oom_kills) == ({}, {}, None)
    assert (reading.hung_tasks, reading.memory_errors) == (None, None)
    assert (reading.sensors, reading.energy_j, reading.storage) == ((), {}, ())


@pytest.mark.parametrize("name", ["proc/stat", "proc/meminfo", "proc/loadavg"])
def test_a_host_that_tells_no_memory_or_time_is_a_failing_probe_not_a_host_of_zeros(
    root: Path, name: str
) -> None:
    (root / name).write_text("garbage\n")
    with pytest.raises(ValueError, match=r"."):
        probe(root).read(0.0)
    (root / name).unlink()
    with pytest.raises(OSError, match="No such file"):
        probe(root).read(0.0)


def test_earlier_tallies_are_kept_for_an_hour(root: Path) -> None:
    host = probe(root, shm=root)
    assert host.read(0.0).earlier == ()
    for second in range(5, 8000, 5):
        reading = host.read(float(second))
    assert reading.now is not None
    assert reading.now.corrected == 7
    assert reading.earlier[0].at_s == pytest.approx(reading.now.at_s - 3600, abs=30)
    assert len(reading.earlier) < 250


def test_this_very_machine_is_read() -> None:
    reading = HostProbe({"shm": Path("/dev/shm")}).read(0.0)
    assert reading.memory_size_bytes > reading.memory_available_bytes > 0
    assert reading.clock is not None
    assert reading.rooms["shm"].size_bytes == os.statvfs("/dev/shm").f_blocks * 4096


def test_another_kernels_files_are_read_as_far_as_they_go() -> None:
    assert parse_stat("cpu  1 2 3 400\nbtime 5\n").cpu_s == {
        "user": pytest.approx(0.03),
        "system": 0.03,
        "idle": 4.0,
    }
    assert parse_meminfo("MemTotal: 4 kB\nMemAvailable: 2 kB\n") == Memory(4096, 2048, 0)
    assert parse_oom_kills("nr_free_pages 12\n") is None
    assert parse_oom_kills("oom_kill many\n") is None


def test_counts_of_memory_errors_that_can_not_be_read_are_not_zero(tmp_path: Path) -> None:
    controller = tmp_path / "devices/system/edac/mc/mc0"
    controller.mkdir(parents=True)
    assert read_memory_errors(tmp_path) is None
    (controller / "ce_count").write_text("5\n")
    assert read_memory_errors(tmp_path) == MemoryErrors(5, None)
