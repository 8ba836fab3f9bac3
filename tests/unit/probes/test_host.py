from __future__ import annotations

import os
from pathlib import Path

from holdfast_sidecar.probes.host import (
    HostProbe,
    parse_pressure,
    read_pressures,
    read_rooms,
)
from holdfast_sidecar.probes.oom import parse_oom_kills

MEMORY = """\
some avg10=12.50 avg60=3.00 avg300=1.00 total=2500000
full avg10=4.25 avg60=1.00 avg300=0.50 total=1000000
"""


def test_pressure_is_read_in_seconds_and_shares() -> None:
    pressure = parse_pressure(MEMORY)
    assert pressure is not None
    assert (pressure.waiting_s, pressure.stalled_s) == (2.5, 1.0)
    assert (pressure.waiting_10s_ratio, pressure.stalled_10s_ratio) == (0.125, 0.0425)


def test_cpu_pressure_of_older_kernels_has_no_full_line() -> None:
    pressure = parse_pressure(MEMORY.splitlines()[0])
    assert pressure is not None
    assert pressure.stalled_s is None


def test_a_kernel_without_psi_says_nothing_rather_than_zero(tmp_path: Path) -> None:
    assert parse_pressure("") is None
    assert read_pressures(tmp_path / "pressure") == {}


def test_a_frozen_proc_tree_is_read(tmp_path: Path) -> None:
    (tmp_path / "pressure").mkdir()
    (tmp_path / "pressure" / "memory").write_text(MEMORY)
    (tmp_path / "vmstat").write_text("nr_free_pages 12\noom_kill 3\npgfault 9\n")
    reading = HostProbe({"shm": tmp_path}, proc=tmp_path).read(0.0)
    assert set(reading.pressure) == {"memory"}
    assert reading.oom_kills == 3
    assert reading.rooms["shm"].size_bytes > 0
    assert reading.memory_size_bytes > reading.memory_available_bytes > 0


def test_oom_kills_of_an_older_kernel_are_unknown() -> None:
    assert parse_oom_kills("nr_free_pages 12\n") is None


def test_room_of_a_directory_that_is_not_made_yet_is_its_parents(tmp_path: Path) -> None:
    room = read_rooms({"checkpoint": tmp_path / "not" / "yet"})["checkpoint"]
    assert room.size_bytes == os.statvfs(tmp_path).f_blocks * os.statvfs(tmp_path).f_frsize
