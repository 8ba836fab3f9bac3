"""What doctor says of this node's way into a job: the gate's own checks, and the hooks."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path

import pytest
from testing.fake_node import DOWN, FakeSysfs, build_fabric

from holdfast_sidecar.cli.doctor import Check
from holdfast_sidecar.cli.doctor.command import check_gate
from holdfast_sidecar.cli.doctor.gpu import Driver
from holdfast_sidecar.cli.doctor.job import check_hooks
from holdfast_sidecar.components.gpu.readings import Gpu, GpuReading, Signal
from holdfast_sidecar.config.settings import (
    CheckpointSettings,
    FabricSettings,
    GateSettings,
    NodesSettings,
    PathSettings,
    Settings,
)

PORTS = 2


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """A machine with two RDMA ports."""
    build_fabric(tmp_path, PORTS)
    (tmp_path / "proc").symlink_to("/proc")
    paths = PathSettings(machine_root=str(tmp_path), state_dir=str(tmp_path / "state"))
    return Settings(paths=paths)


def two_gpus(**values: float) -> Driver:
    told = {Signal[name]: value for name, value in values.items()}
    gpus = (Gpu(0, "GPU-a", "H100", "0000:17:00.0", told), Gpu(1, "GPU-b", "H100", "0000:2a:00.0"))
    return Driver(versions="driver 580", reading=GpuReading(True, "580", gpus))


def wrong(settings: Settings, driver: Driver) -> list[Check]:
    return [check for check in check_gate(settings, driver) if check.verdict != "ok"]


def test_a_node_that_would_be_taken_in_is_told_so(settings: Settings) -> None:
    (check,) = check_gate(settings, two_gpus())
    assert check.verdict == "ok"
    assert check.line == (
        "this node would be taken into a job "
        "(gpus, recovery, gpu memory, pcie, nvlink, gpu faults, links, room)"
    )


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"REMAP_PENDING": 1}, "GPU 0 (0000:17:00.0) has rows to be remapped: it must be reset"),
        ({"RECOVERY_ACTION": 2}, "GPU 0 (0000:17:00.0) needs "),
        ({"NVLINKS_ACTIVE": 17, "NVLINKS_EXPECTED": 18}, "has 17 of 18 links"),
    ],
)
def test_what_would_keep_the_node_out_fails(
    settings: Settings, values: dict[str, float], says: str
) -> None:
    check, *_ = wrong(settings, two_gpus(**values))
    assert check.verdict == "fail"
    assert check.line.startswith("this node would be kept out of a job: ")
    assert says in check.line


def test_settings_are_held_against_what_is_there(settings: Settings, tmp_path: Path) -> None:
    settings = dataclasses.replace(
        settings,
        gate=GateSettings(expected_gpus=8, least_room_bytes=2**62),
        fabric=FabricSettings(ports=8),
        checkpoint=CheckpointSettings(dir=str(tmp_path / "checkpoints")),
    )
    found = {check.what: check.line for check in wrong(settings, two_gpus())}
    assert found.keys() == {"gate: gpus", "gate: links", "gate: room"}
    assert "2 of 8 are there" in found["gate: gpus"]
    assert "6 of 8 RDMA ports have not been active" in found["gate: links"]
    assert "are left for checkpoints" in found["gate: room"]


def test_a_port_that_is_down_counts_where_settings_want_it(
    settings: Settings, tmp_path: Path
) -> None:
    FakeSysfs(tmp_path).set_state("mlx5_1", DOWN)
    assert wrong(settings, two_gpus()) == []
    wanted = dataclasses.replace(settings, fabric=FabricSettings(ports=PORTS))
    (check,) = wrong(wanted, two_gpus())
    assert "1 of 2 RDMA ports have not been active" in check.line


def test_a_fault_in_the_kernel_s_log_that_is_not_mended_counts(
    settings: Settings, tmp_path: Path
) -> None:
    (tmp_path / "dev").mkdir()
    now_us = int(time.monotonic() * 1e6)
    fell = "NVRM: Xid (PCI:0000:2a:00): 79, pid=7, GPU has fallen off the bus."
    (tmp_path / "dev/kmsg").write_text(f"3,1,{now_us},-;{fell}\n")
    (check,) = wrong(settings, two_gpus())
    assert (check.what, check.verdict) == ("gate: gpu faults", "fail")
    assert "79" in check.line
    assert not (tmp_path / "state").exists()


def test_without_a_driver_only_settings_say_that_gpus_are_missing(settings: Settings) -> None:
    none = Driver(reading=GpuReading(is_present=False))
    assert wrong(settings, none) == []
    wanting = dataclasses.replace(settings, gate=GateSettings(expected_gpus=8))
    assert "0 of 8 are there" in wrong(wanting, none)[0].line


def test_where_the_gate_only_tells_nothing_fails(settings: Settings) -> None:
    settings = dataclasses.replace(settings, gate=GateSettings(mode="suggest", expected_gpus=8))
    (check,) = wrong(settings, two_gpus())
    assert (check.verdict, check.line.partition(":")[0]) == ("warn", "2 of 8 are there")


def test_what_the_driver_does_not_tell_keeps_nobody_out(settings: Settings) -> None:
    found = wrong(settings, Driver(trouble="does not answer within 10 s"))
    assert {check.verdict for check in found} == {"note"}
    assert "keeps nobody out: does not answer within 10 s" in found[0].line


def test_the_program_of_a_hook_is_looked_for() -> None:
    nodes = NodesSettings("/no/such {node}", "true {node}")
    missing, there = check_hooks(nodes)
    assert (missing.what, missing.verdict) == ("nodes.on_quarantine", "warn")
    assert "there is no program '/no/such' here" in missing.line
    assert (there.verdict, there.line) == ("ok", "true")
    assert check_hooks(NodesSettings()) == []
    assert check_hooks(NodesSettings("'nope")) == []
    (depends,) = check_hooks(NodesSettings("{node}"))
    assert depends.verdict == "ok"
