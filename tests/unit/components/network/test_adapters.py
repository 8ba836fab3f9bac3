"""Lines of the kernel's log about network adapters and other parts, as drivers write them."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from tests.unit.ranks.scene import moment

from holdfast_sidecar.components.machine import KernelEvents, parse_event
from holdfast_sidecar.components.network.checks import find_troubled_adapters
from holdfast_sidecar.records.findings import Kind


@dataclass(frozen=True)
class Line:
    text: str
    at_unix_s: float = 1_000_000.0


POWER = (
    "mlx5_core 0000:5c:00.0: mlx5_pcie_event:299:(pid 268269): "
    "Detected insufficient power on the PCIe slot (27W)."
)
HEAT = "mlx5_core 0000:5c:00.0: Port module event[error]: module 0, Cable error, High Temperature"
REFUSED = (
    "mlx5_core 0000:d2:00.0: mlx5_cmd_out_err:835:(pid 268269): ACCESS_REG(0x805) op_mod(0x1) "
    "failed, status bad resource(0x5), syndrome (0x2c6e77), err(-22)"
)


@pytest.mark.parametrize(
    ("text", "event", "pci"),
    [
        (POWER, "mlx5_power", "0000:5c:00.0"),
        (HEAT, "mlx5_heat", "0000:5c:00.0"),
        (REFUSED, "mlx5_refused", "0000:d2:00.0"),
        (
            "pcieport 0000:00:01.0: AER: Corrected error message received from 0000:01:00.0",
            "pcie_error",
            "0000:00:01.0",
        ),
        ("INFO: task python:4711 blocked for more than 122 seconds.", "hung_task", ""),
        ("nfs: server filer not responding, still trying", "nfs_silent", ""),
        ("EDAC MC0: 1 CE memory read error on CPU_SrcID#0_MC#0", "memory_error", ""),
        ("LustreError: 11-0: scratch-OST0001-osc: operation ost_read failed", "lustre_error", ""),
        ("nvme nvme0: I/O 193 QID 4 timeout, aborting", "nvme_timeout", ""),
        ("nvme nvme3: I/O tag 12 (0x300c) QID 9 timeout, completion polled", "nvme_timeout", ""),
        ("EXT4-fs (nvme0n1p2): Remounting filesystem read-only", "disk_read_only", ""),
        (
            "XFS (dm-0): Corruption of in-memory data detected.  Shutting down filesystem",
            "disk_read_only",
            "",
        ),
        ("BTRFS info (device sda1: state E): forced readonly", "disk_read_only", ""),
        ("watchdog: BUG: soft lockup - CPU#12 stuck for 26s! [python:4711]", "lockup", ""),
        ("NMI watchdog: Watchdog detected hard LOCKUP on cpu 3", "lockup", ""),
        (
            "python3[4711]: segfault at 8 ip 00007f1 sp 00007f2 error 4 in libnccl.so.2.27.5[7f+1]",
            "nccl_crash",
            "",
        ),
    ],
)
def test_lines_are_known_by_the_drivers_words(text: str, event: str, pci: str) -> None:
    found = parse_event(Line(text))
    assert found is not None
    assert (found.event, found.pci) == (event, pci)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "mlx5_core 0000:5c:00.0: Port module event: module 0, Cable plugged",
        "nvme nvme0: 32/0/0 default/read/poll queues",
        "EXT4-fs (sda1): mounted filesystem with ordered data mode",
        "python3[4711]: segfault at 8 ip 00007f1 sp 00007f2 error 4 in libtorch.so[7f+1]",
        "nfs: server filer OK",
        'python says "mlx5_core Detected insufficient power on the PCIe slot"',
    ],
)
def test_other_lines_are_none_of_ours(text: str) -> None:
    assert parse_event(Line(text)) is None


def test_events_are_counted_from_0_on() -> None:
    none = KernelEvents()
    some = none.then([Line(POWER), Line("what?"), Line(POWER)])
    assert set(none.counts.values()) == {0}
    assert (some.counts["mlx5_power"], some.counts["mlx5_heat"]) == (2, 0)
    assert none.then([Line("what?")]) is none


def test_an_adapter_that_complained_is_told_for_ten_minutes() -> None:
    now = moment(10.0)
    events = KernelEvents().then([Line(HEAT, now.now_unix_s - 599)])
    (finding,) = find_troubled_adapters(events, now)
    assert (finding.kind, finding.what) == (Kind.LINK_DEGRADED, "adapter 0000:5c:00.0")
    assert finding.evidence[1] == HEAT
    old = KernelEvents().then([Line(HEAT, now.now_unix_s - 600)])
    assert list(find_troubled_adapters(old, now)) == []
    assert list(find_troubled_adapters(None, now)) == []


def test_a_refused_command_is_counted_and_nothing_else() -> None:
    now = moment(10.0)
    events = KernelEvents().then([Line(REFUSED, now.now_unix_s)])
    assert list(find_troubled_adapters(events, now)) == []
