"""PCIe errors as the kernel shows them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from testing.fake_node import GPU_CLASS, FakeSysfs, build_fabric, write_in_place

from holdfast_sidecar.components.network.pcie import PciProbe, kind_of, parse_errors
from holdfast_sidecar.linux.probe_runner import PartlyReadError, ProbeRunner


@pytest.fixture
def sysfs(tmp_path: Path) -> FakeSysfs:
    sysfs = build_fabric(tmp_path, ports=1)
    sysfs.add_pci("0000:17:00.0", GPU_CLASS, "nvidia")
    sysfs.add_pci("0000:00:1f.2", "0x010601")
    return sysfs


def probe(sysfs: FakeSysfs) -> PciProbe:
    return PciProbe(sysfs.sys / "bus/pci/devices")


def test_gpus_and_nics_are_watched_and_disks_are_not(sysfs: FakeSysfs) -> None:
    devices = probe(sysfs).read(0.0).devices
    kinds = {address: device.kind for address, device in devices.items()}
    assert kinds == {"0000:05:00.0": "nic", "0000:17:00.0": "gpu", "0000:18:00.0": "nic"}
    assert kind_of("0x068000") == "bridge"


def test_totals_are_told_by_severity(sysfs: FakeSysfs) -> None:
    sysfs.set_errors("0000:17:00.0", "correctable", 12)
    sysfs.set_errors("0000:17:00.0", "fatal", 1)
    errors = probe(sysfs).read(0.0).devices["0000:17:00.0"].errors
    assert errors == {"correctable": 12, "nonfatal": 0, "fatal": 1}


def test_without_a_total_the_lines_are_summed_and_garbage_is_nothing() -> None:
    assert parse_errors("RxErr 2\nBadTLP 3\n") == 5
    assert parse_errors("RxErr 2\nTOTAL_ERR_COR 7\n") == 7
    assert [parse_errors(text) for text in ("", "nothing here", "RxErr -1\n")] == [None] * 3
    assert parse_errors("TOTAL_ERR_COR " + "9" * 5000) is None


def test_a_device_that_is_gone_or_garbled_is_left_out(sysfs: FakeSysfs) -> None:
    pci = probe(sysfs)
    pci.read(0.0)
    shutil.rmtree(sysfs.sys / "bus/pci/devices/0000:17:00.0")
    write_in_place(sysfs.sys / "bus/pci/devices/0000:18:00.0/aer_dev_fatal", "?")
    with pytest.raises(
        PartlyReadError, match=r"0000:18:00.0: aer_dev_fatal ends in '\?'"
    ) as partly:
        pci.read(10.0)
    devices = partly.value.reading.devices
    assert "0000:17:00.0" not in devices
    assert "fatal" not in devices["0000:18:00.0"].errors


@pytest.mark.parametrize("count", [2**64, 99999999999999999999999, 2**53 + 1])
def test_a_count_that_cannot_be_is_absent_with_a_reason(sysfs: FakeSysfs, count: int) -> None:
    pci = ProbeRunner(probe(sysfs), every_s=0.0)
    pci.read(0.0)
    file = sysfs.sys / "bus/pci/devices/0000:17:00.0/aer_dev_fatal"
    write_in_place(file, f"DLP {count}\nTOTAL_ERR_FATAL {count}\n")
    reading = pci.read(10.0)
    assert reading is not None
    device = reading.devices["0000:17:00.0"]
    assert (set(device.errors), set(device.trails)) == (
        {"correctable", "nonfatal"},
        {"correctable", "nonfatal"},
    )
    assert not reading.troubled
    assert not pci.health.is_up
    assert pci.health.error.startswith("0000:17:00.0: aer_dev_fatal ends in ")


def test_a_machine_without_pci_has_none(tmp_path: Path) -> None:
    assert PciProbe(tmp_path / "bus/pci/devices").read(0.0).devices == {}
