"""What doctor says of host and fabric."""

from __future__ import annotations

from pathlib import Path

import pytest
from testing.fake_node import FakeSysfs

from holdfast_sidecar.cli.doctor import Check, gpu, host
from holdfast_sidecar.cli.doctor.command import checks_page
from holdfast_sidecar.cli.doctor.host import may_trace_children
from holdfast_sidecar.components.host.readings import CgroupReading, MemoryErrors, Sensor
from holdfast_sidecar.components.network.rdma import Selection
from holdfast_sidecar.linux.files import KernelTrees


@pytest.mark.parametrize(
    ("check", "verdict", "says"),
    [
        (host.judge_pressure(["cpu", "memory"]), "ok", "wait for cpu, memory"),
        (host.judge_pressure([]), "note", "psi=1"),
        (host.judge_group(CgroupReading(2**30, 5), True), "ok", "version 2, limits: memory 1 GiB"),
        (host.judge_group(CgroupReading(None, 5), False), "ok", "version 1, limits: none"),
        (
            host.judge_group(CgroupReading(None, 5, 2.5), True),
            "note",
            "2.5 CPUs; ranks stand still",
        ),
        (host.judge_group(CgroupReading(), True), "note", "can't be read"),
        (host.judge_memory_errors(None), "note", "EDAC driver"),
        (host.judge_memory_errors(MemoryErrors(3, 0)), "ok", "3 corrected"),
        (host.judge_memory_errors(MemoryErrors(0, 1)), "warn", "replaced"),
        (host.judge_sensors(()), "note", "no sensor"),
        (host.judge_sensors((Sensor("coretemp", 60, 100),)), "ok", "coretemp, by 40 °C"),
        (host.judge_perf("2"), "note", "perf_event_paranoid=1"),
        (host.judge_perf("-1"), "ok", "-1"),
        (host.judge_perf("garbage"), "note", "none"),
    ],
)
def test_what_the_host_tells_and_what_is_lost_without(
    check: Check, verdict: str, says: str
) -> None:
    assert check.verdict == verdict
    assert says in check.line


def test_a_root_of_the_machine_that_is_none_is_a_failure(tmp_path: Path) -> None:
    """Everything else would only be a note, one by one: not seen, fine without."""
    missing = host.check_host(KernelTrees(str(tmp_path / "none")))[0]
    assert (missing.verdict, missing.what) == ("fail", "machine root")
    assert "paths.machine_root" in missing.line
    empty = host.check_host(KernelTrees(str(tmp_path)))[0]
    assert (empty.verdict, empty.what) == ("fail", "machine root")
    (tmp_path / "proc").mkdir()
    assert all(check.verdict != "fail" for check in host.check_host(KernelTrees(str(tmp_path))))


def port(root: Path, device: str, state: str, counters: bool = True) -> None:
    folder = root / f"sys/class/infiniband/{device}/ports/1"
    (folder / "counters").mkdir(parents=True)
    (folder / "state").write_text(f"{state}\n")
    if counters:
        (folder / "counters/symbol_error").write_text("0\n")


def test_ports_are_counted_and_those_that_can_not_be_read_are_named(tmp_path: Path) -> None:
    root = tmp_path / "sys/class/infiniband"
    assert gpu.check_rdma(root).verdict == "note"
    port(tmp_path, "mlx5_0", "4: ACTIVE")
    port(tmp_path, "mlx5_1", "1: DOWN")
    assert gpu.check_rdma(root, ports=1) == Check("InfiniBand", "ok", "2 ports, 1 of them active")
    unsaid = gpu.check_rdma(root)
    assert (unsaid.verdict, "fabric.ports" in unsaid.line) == ("note", True)
    fewer = gpu.check_rdma(root, ports=2)
    assert (fewer.verdict, "where fabric.ports wants 2" in fewer.line) == ("warn", True)
    port(tmp_path, "mlx5_2", "4: ACTIVE", counters=False)
    blind = gpu.check_rdma(root)
    assert (blind.verdict, "mlx5_2/ports/1" in blind.line) == ("warn", True)


def test_ports_that_are_all_down_are_warned_of(tmp_path: Path) -> None:
    port(tmp_path, "mlx5_0", "1: DOWN")
    assert gpu.check_rdma(tmp_path / "sys/class/infiniband").verdict == "warn"


def test_interfaces_of_a_container_hide_the_links(tmp_path: Path) -> None:
    (tmp_path / "sys/class/net/eth0").mkdir(parents=True)
    hidden = gpu.check_fabric(KernelTrees(str(tmp_path)))[1]
    assert (hidden.verdict, "hostNetwork" in hidden.line) == ("note", True)
    (tmp_path / "sys/class/net/eth1/device").mkdir(parents=True)
    assert gpu.check_interfaces(tmp_path / "sys/class/net").line.startswith("eth1: ")


def test_a_tree_of_garbage_is_told_as_losses(tmp_path: Path) -> None:
    (tmp_path / "proc/pressure").mkdir(parents=True)
    (tmp_path / "proc/pressure/memory").write_text("\x00\n")
    checks = host.check_host(KernelTrees(str(tmp_path)))
    assert {check.verdict for check in checks} == {"note"}


def test_tracing_is_tried_on_a_child_which_is_gone_afterwards() -> None:
    assert may_trace_children() in (True, False)


def test_the_page_groups_checks_by_part() -> None:
    checks = [
        Check("a", "ok", "one", "first"),
        Check("bb", "warn", "two", "first"),
        Check("c", "fail", "three", "second"),
    ]
    assert checks_page(checks) == (
        "first\n  ok    a   one\n  warn  bb  two\n\nsecond\n  fail  c   three\n\n"
        "3 checks: 1 failed, 1 warned"
    )


def test_an_efa_device_has_counters_of_its_own_and_one_that_is_excluded_is_not_looked_at(
    tmp_path: Path,
) -> None:
    sysfs = FakeSysfs(tmp_path)
    sysfs.add_efa("rdmap16s27", "0000:10:1b.0")
    root = sysfs.sys / "class/infiniband"
    assert gpu.check_rdma(root) == Check("InfiniBand", "ok", "1 ports, 1 of them active")
    assert gpu.check_rdma(root, Selection(exclude=("rdmap*",))).verdict == "note"
