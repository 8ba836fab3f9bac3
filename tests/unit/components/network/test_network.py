from __future__ import annotations

from pathlib import Path

import pytest

from holdfast_sidecar.components.network.ethernet import NetworkProbe


@pytest.fixture
def sysfs(tmp_path: Path) -> Path:
    """A frozen /sys/class/net: one cable, one loopback, one bridge without speed, one odd file."""
    interface(tmp_path, "eth0", type=1, carrier=1, carrier_down_count=4, speed=25000)
    (tmp_path / "eth0" / "device").mkdir()
    interface(tmp_path, "lo", type=772, carrier=1)
    interface(tmp_path, "br0", type=1, speed=-1)
    (tmp_path / "bonding_masters").write_text("bond0\n")
    return tmp_path


def interface(root: Path, name: str, **files: int) -> None:
    (root / name / "statistics").mkdir(parents=True)
    for file, value in files.items():
        (root / name / file).write_text(f"{value}\n")
    for number, counter in enumerate(("rx_bytes", "tx_bytes", "rx_errors", "tx_errors")):
        (root / name / "statistics" / counter).write_text(f"{number + 10}\n")


def test_every_interface_but_loopback_is_read(sysfs: Path) -> None:
    assert set(NetworkProbe(sysfs).read(0.0).interfaces) == {"br0", "eth0"}


def test_a_cable_is_told_in_bytes(sysfs: Path) -> None:
    eth0 = NetworkProbe(sysfs).read(0.0).interfaces["eth0"]
    assert (eth0.has_carrier, eth0.carrier_losses, eth0.is_physical) == (True, 4, True)
    assert eth0.speed_bytes_per_s == 25e9 / 8
    assert eth0.counters["tx_bytes"] == 11


def test_what_the_driver_does_not_say_is_absent(sysfs: Path) -> None:
    bridge = NetworkProbe(sysfs).read(0.0).interfaces["br0"]
    assert bridge.has_carrier is None
    assert bridge.speed_bytes_per_s is None
    assert "rx_dropped" not in bridge.counters


def test_a_machine_without_sysfs_is_a_failure_of_the_probe(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        NetworkProbe(tmp_path / "nothing").read(0.0)


def test_links_over_usb_and_over_the_air_are_told_and_have_no_story(sysfs: Path) -> None:
    buses = sysfs / "bus"
    for bus, name in (("pci", "eth1"), ("usb", "enx1"), ("pci", "wlan0")):
        interface(sysfs, name, type=1, carrier=1)
        (sysfs / name / "device").mkdir()
        (buses / bus).mkdir(parents=True, exist_ok=True)
        (sysfs / name / "device/subsystem").symlink_to(buses / bus)
    (sysfs / "wlan0/phy80211").mkdir()
    reading = NetworkProbe(sysfs).read(0.0)
    assert {"enx1", "wlan0"} < set(reading.interfaces)
    assert set(reading.links) == {"eth0", "eth1"}


@pytest.mark.parametrize(("pairs", "are_told"), [(4, True), (40, False)])
def test_the_ends_of_a_hosts_containers_are_left_out_where_there_are_many(
    sysfs: Path, pairs: int, are_told: bool
) -> None:
    (sysfs / "br0/uevent").write_text("DEVTYPE=bridge\nINTERFACE=br0\n")
    for number in range(pairs):
        interface(sysfs, f"veth{number:04}", type=1, carrier=1)
        (sysfs / f"veth{number:04}/uevent").write_text(f"INTERFACE=veth{number:04}\n")
    interfaces = set(NetworkProbe(sysfs).read(0.0).interfaces)
    assert {"br0", "eth0"} <= interfaces
    assert ("veth0000" in interfaces) == are_told
