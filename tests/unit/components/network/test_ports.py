"""RDMA ports on a tree as mlx5 and EFA make it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from testing.fake_node import ACTIVE, DOWN, FakeSysfs, build_fabric, write_in_place

from holdfast_sidecar.components.network.rdma import (
    COUNTERS_EVERY_S,
    FabricProbe,
    Selection,
    parse_counter,
    parse_lifespan_s,
    parse_rate,
    parse_state,
)
from holdfast_sidecar.components.network.readings import FabricReading
from holdfast_sidecar.config.settings import FabricSettings
from holdfast_sidecar.linux.probe_runner import ProbeRunner


@pytest.fixture
def sysfs(tmp_path: Path) -> FakeSysfs:
    return build_fabric(tmp_path, ports=2)


def probe(sysfs: FakeSysfs, **patterns: str) -> FabricProbe:
    selection = Selection.of(FabricSettings(**patterns))  # type: ignore[arg-type]
    return FabricProbe(sysfs.sys / "class/infiniband", selection)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every path that is opened from now on."""
    paths: list[str] = []
    really_open = os.open

    def recorded(path: str, *rest: int) -> int:
        paths.append(os.fspath(path))
        return really_open(path, *rest)

    monkeypatch.setattr(os, "open", recorded)
    return paths


def test_a_port_is_told_with_its_device_and_rate(sysfs: FakeSysfs) -> None:
    port = probe(sysfs).read(0.0).ports["mlx5_1/1"]
    assert (port.is_up, port.state, port.physical_state) == (True, 4, 5)
    assert (port.rate_bytes_per_s, port.link_layer) == (50e9, "InfiniBand")
    assert port.device.pci == "0000:28:00.0"
    assert port.device.driver == "mlx5_core"
    assert (port.device.board, port.device.firmware) == ("MT_0000000838", "28.39.1002")


def test_data_are_counted_in_words_of_four_bytes_and_all_else_as_it_is(sysfs: FakeSysfs) -> None:
    sysfs.count("mlx5_0", port_xmit_data=10, port_rcv_data=2**40, port_xmit_packets=10)
    counters = probe(sysfs).read(0.0).ports["mlx5_0/1"].counters
    assert counters["port_xmit_data"] == 40
    assert counters["port_rcv_data"] == 2**42
    assert counters["port_xmit_packets"] == 10


def test_a_counter_of_32_bits_that_is_full_says_nothing() -> None:
    assert parse_counter("port_xmit_data", "4294967295\n") is None
    assert parse_counter("port_rcv_packets", "4294967295\n") is None
    assert parse_counter("symbol_error", "65535\n") == 65535


@pytest.mark.parametrize("text", ["", "\n", "N/A (no PMA)\n", "-3\n", "0x10\n", "1.5\n", "²\n"])
def test_garbage_is_no_count(text: str) -> None:
    assert parse_counter("symbol_error", text) is None


def test_states_rates_and_lifespans_that_are_none_are_absent() -> None:
    assert parse_state("4: ACTIVE\n") == 4
    assert [parse_state(text) for text in ("", "ACTIVE", ": 4")] == [None] * 3
    assert parse_rate("100 Gb/sec (4X EDR)\n") == 12.5e9
    assert parse_rate("2.5 Gb/sec (1X SDR)\n") == 2.5e9 / 8
    assert [parse_rate(text) for text in ("", "fast", "0 Gb/sec (4X)")] == [None] * 3
    assert (parse_lifespan_s("10\n"), parse_lifespan_s("soon")) == (0.01, 0.0)


def test_of_an_excluded_device_no_file_is_ever_opened(sysfs: FakeSysfs, opened: list[str]) -> None:
    reading = probe(sysfs, exclude="mlx5_0, irdma*").read(0.0)
    assert set(reading.ports) == {"mlx5_1/1"}
    assert any("mlx5_1/ports/1/counters" in path for path in opened)
    assert not [path for path in opened if "mlx5_0" in path]


def test_only_what_is_included_is_read(sysfs: FakeSysfs, opened: list[str]) -> None:
    assert set(probe(sysfs, include="mlx5_0").read(0.0).ports) == {"mlx5_0/1"}
    assert not [path for path in opened if "mlx5_1" in path]


def test_counters_are_read_rarely_and_the_state_each_time(
    sysfs: FakeSysfs, opened: list[str]
) -> None:
    fabric = probe(sysfs)
    fabric.read(0.0)
    opened.clear()
    sysfs.count("mlx5_0", symbol_error=7)
    sysfs.set_state("mlx5_0", DOWN)
    opened.clear()
    port = fabric.read(1.0).ports["mlx5_0/1"]
    assert [Path(path).name for path in opened] == ["state", "state"]
    assert (port.is_up, port.counters["symbol_error"]) == (False, 0)
    port = fabric.read(COUNTERS_EVERY_S).ports["mlx5_0/1"]
    assert port.counters["symbol_error"] == 7


def test_hw_counters_are_not_read_again_while_the_driver_keeps_its_answer(
    sysfs: FakeSysfs,
) -> None:
    write_in_place(sysfs.port("mlx5_0") / "hw_counters/lifespan", 12_000)
    fabric = probe(sysfs)
    fabric.read(0.0)
    sysfs.count("mlx5_0", out_of_buffer=3, symbol_error=3)

    def told(now_s: float) -> tuple[int, int]:
        counters = fabric.read(now_s).ports["mlx5_0/1"].counters
        return counters["out_of_buffer"], counters["symbol_error"]

    assert told(5.0) == (0, 3)
    assert told(12.0) == (3, 3)


def test_files_that_cannot_be_read_are_left_out_and_the_others_told(sysfs: FakeSysfs) -> None:
    counters = sysfs.port("mlx5_0") / "counters"
    (counters / "symbol_error").unlink()
    (counters / "symbol_error").mkdir()  # whoever opens it gets an error, root too
    write_in_place(counters / "link_downed", "N/A (no PMA)")
    read = probe(sysfs).read(0.0).ports["mlx5_0/1"].counters
    assert not {"symbol_error", "link_downed"} & set(read)
    assert read["port_rcv_errors"] == 0


@pytest.mark.parametrize("said", ["what?", "", "17: ACTIVE", "-1: DOWN"])
def test_a_port_whose_state_makes_no_sense_is_neither_up_nor_down_and_the_probe_fails(
    sysfs: FakeSysfs, said: str
) -> None:
    fabric = probe(sysfs)
    fabric.read(0.0)
    write_in_place(sysfs.port("mlx5_0") / "state", said)
    runner = ProbeRunner(fabric, every_s=0.0)
    reading = runner.read(1.0)
    assert reading is not None
    assert (runner.health.is_up, runner.health.error) == (
        False,
        f"mlx5_0/1: its state reads {said!r}",
    )
    assert reading.ports["mlx5_0/1"].is_up is None
    assert reading.ports["mlx5_1/1"].is_up
    assert reading.links["mlx5_0/1"].down_since_s is None


def test_a_device_that_vanishes_after_it_was_listed_is_a_lost_link(sysfs: FakeSysfs) -> None:
    fabric = probe(sysfs)
    fabric.read(0.0)
    shutil.rmtree(sysfs.port("mlx5_0").parent.parent)
    reading = fabric.read(1.0)
    assert set(reading.ports) == {"mlx5_1/1"}
    story = reading.links["mlx5_0/1"]
    assert (story.down_since_s, story.is_there) == (1.0, False)


def test_a_device_that_vanished_leaves_no_file_open(sysfs: FakeSysfs) -> None:
    def open_files() -> list[str]:
        links = [Path(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd")]
        paths = [str(one.readlink()) for one in links if one.is_symlink()]
        return [path for path in paths if path.startswith(str(sysfs.root))]

    fabric = probe(sysfs)
    fabric.read(0.0)
    assert [path for path in open_files() if "mlx5_0" in path]
    shutil.rmtree(sysfs.port("mlx5_0").parent.parent)
    fabric.read(1.0)
    assert not [path for path in open_files() if "mlx5_0" in path]
    assert [path for path in open_files() if "mlx5_1" in path]
    fabric.selection = Selection.of(FabricSettings(exclude="*"))
    fabric.read(COUNTERS_EVERY_S)
    assert not [path for path in open_files() if "mlx5_1" in path]


def test_a_device_of_the_same_name_has_counters_of_its_own(sysfs: FakeSysfs) -> None:
    sysfs.count("mlx5_0", symbol_error=7)
    fabric = probe(sysfs)
    assert fabric.read(0.0).ports["mlx5_0/1"].counters["symbol_error"] == 7
    device = sysfs.port("mlx5_0").parent.parent
    shutil.move(str(device), sysfs.root / "away")
    fabric.read(1.0)
    shutil.copytree(sysfs.root / "away", device, symlinks=True)
    sysfs.count("mlx5_0", symbol_error=2)
    counters = fabric.read(COUNTERS_EVERY_S).ports["mlx5_0/1"].counters
    assert counters["symbol_error"] == 9


def test_a_device_that_comes_back_is_read_again(sysfs: FakeSysfs) -> None:
    fabric = probe(sysfs)
    fabric.read(0.0)
    device = sysfs.port("mlx5_0").parent.parent
    device.rename(device.with_name("away"))
    shutil.move(str(device.with_name("away")), sysfs.root / "away")
    fabric.read(COUNTERS_EVERY_S)
    shutil.move(str(sysfs.root / "away"), device)
    reading: FabricReading = fabric.read(2 * COUNTERS_EVERY_S)
    assert reading.ports["mlx5_0/1"].is_up
    assert len(reading.links["mlx5_0/1"].flaps_s) == 1


def test_a_machine_without_rdma_has_no_ports(tmp_path: Path) -> None:
    assert FabricProbe(tmp_path / "class/infiniband").read(0.0) == FabricReading()


def test_efa_tells_through_hw_counters_alone(tmp_path: Path) -> None:
    sysfs = FakeSysfs(tmp_path)
    sysfs.add_efa("rdmap0s6", "0000:00:06.0")
    sysfs.count("rdmap0s6", rx_bytes=5, retrans_timeout_events=2)
    port = probe(sysfs).read(0.0).ports["rdmap0s6/1"]
    assert port.device.driver == "efa"
    assert (port.counters["rx_bytes"], port.counters["retrans_timeout_events"]) == (5, 2)
    assert "alloc_pd_err" not in port.counters


def test_a_link_that_fell_and_came_back_between_two_looks_has_flapped(sysfs: FakeSysfs) -> None:
    fabric = probe(sysfs)
    fabric.read(0.0)
    sysfs.set_state("mlx5_0", DOWN)
    sysfs.set_state("mlx5_0", ACTIVE)
    assert fabric.read(1.0).links["mlx5_0/1"].flaps_s == ()
    assert fabric.read(COUNTERS_EVERY_S).links["mlx5_0/1"].flaps_s == (COUNTERS_EVERY_S,)
