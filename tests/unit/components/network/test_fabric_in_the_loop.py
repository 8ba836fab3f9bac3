"""Ticks of the loop over a tree of its own: what links do becomes a finding, told to the others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from testing.fake_node import ACTIVE, DOWN, build_fabric
from tests.unit.test_loop import Fixed, loop  # noqa: F401 - a fixture

from holdfast_sidecar.components.network.ethernet import NetworkProbe
from holdfast_sidecar.components.network.rdma import FabricProbe
from holdfast_sidecar.linux.kmsg import KernelReading, KernelRecord
from holdfast_sidecar.linux.probe_runner import ProbeRunner
from holdfast_sidecar.loop import Loop
from holdfast_sidecar.records.findings import Kind, Remedy
from holdfast_sidecar.store.orders import Orders


def kinds(loop: Loop) -> list[tuple[Kind, str]]:  # noqa: F811
    told = loop.coordination.told[-1]  # type: ignore[attr-defined]
    return [(finding.kind, finding.what) for finding in told.findings]


def test_a_flap_is_told_and_a_drop_is_told_as_a_fault(loop: Loop, tmp_path: Path) -> None:  # noqa: F811
    sysfs = build_fabric(tmp_path / "machine", ports=2)
    fabric = ProbeRunner(FabricProbe(sysfs.sys / "class/infiniband"), 1.0)
    loop.machine = replace(loop.machine, fabric=fabric)
    loop.tick(0.0, 1000.0)
    sysfs.set_state("mlx5_0", DOWN)
    loop.tick(10.0, 1010.0)
    assert kinds(loop) == []
    sysfs.set_state("mlx5_0", ACTIVE)
    loop.tick(20.0, 1020.0)
    assert kinds(loop) == [(Kind.LINK_FLAPPING, "mlx5_0/1")]
    sysfs.set_state("mlx5_1", DOWN)
    loop.tick(25.0, 1025.0)
    loop.tick(60.0, 1060.0)
    assert (Kind.LINK_DOWN, "mlx5_1/1") in kinds(loop)


@pytest.mark.parametrize(("most", "remedy"), [(1, Remedy.NONE), (2, Remedy.REPLACE)])
def test_a_lost_link_is_only_told_where_the_job_never_has_another_node(
    loop: Loop,  # noqa: F811
    tmp_path: Path,
    most: int,
    remedy: Remedy,
) -> None:
    sysfs = build_fabric(tmp_path / "machine", ports=1)
    loop.coordination.agreed = Orders(store_up=True, is_alone=most == 1)  # type: ignore[attr-defined]
    loop.machine = replace(
        loop.machine, network=ProbeRunner(NetworkProbe(sysfs.sys / "class/net"), 1.0)
    )
    loop.tick(0.0, 1000.0)
    sysfs.set_carrier("eth0", has_carrier=False)
    loop.tick(5.0, 1005.0)
    loop.tick(40.0, 1040.0)
    told = loop.coordination.told[-1].findings  # type: ignore[attr-defined]
    assert (told[0].kind, told[0].what, told[0].remedy) == (Kind.LINK_DOWN, "eth0", remedy)
    gate = loop.coordination.told[-1].gate  # type: ignore[attr-defined]
    assert gate.state == ("fit" if most == 1 else "unfit")


def test_the_kernels_lines_are_counted_once_each(loop: Loop) -> None:  # noqa: F811
    line = "mlx5_core 0000:5c:00.0: Port module event[error]: module 0, High Temperature"
    log = Fixed(KernelReading((KernelRecord(1, 3, 5.0, line, at_unix_s=999.0),)))
    loop.machine = replace(loop.machine, kernel=ProbeRunner(log, 0.0))
    loop.tick(0.0, 1000.0)
    log.answer = KernelReading()
    loop.tick(1.0, 1001.0)
    assert kinds(loop) == [(Kind.LINK_DEGRADED, "adapter 0000:5c:00.0")]
    told = loop.teller.pictures[-1].machine.kernel_events  # type: ignore[attr-defined]
    assert told.counts["mlx5_heat"] == 1
