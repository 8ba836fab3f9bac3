"""PCIe errors that devices report to the kernel (Advanced Error Reporting), from sysfs.

Only GPUs, NICs and NVSwitches, and only those whose driver and root port have AER at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from holdfast_sidecar.kernel_files import names_in, read_if_any
from holdfast_sidecar.readings.fabric import PciDevice, PciReading
from holdfast_sidecar.readings.trail import Trail

EVERY_S = 10.0
"""Errors are judged by the minute."""

LIST_EVERY_S = 300.0
"""A host has hundreds of PCI devices, and they hardly ever change."""

SEVERITIES = ("correctable", "nonfatal", "fatal")

_KINDS = {"0x02": "nic", "0x03": "gpu", "0x0680": "bridge"}
"""By class code: network, display (3D controllers too), and `other bridge`, which NVSwitch is."""


@dataclass
class PciProbe:
    """Reads sysfs under `root` (/sys/bus/pci/devices). No such directory: there is no PCI."""

    root: Path = Path("/sys/bus/pci/devices")
    name: str = "pci"
    _kinds: Mapping[str, str] = field(default_factory=dict)
    _trails: dict[tuple[str, str], Trail] = field(default_factory=dict)
    _list_due_s: float = float("-inf")

    def read(self, now_s: float) -> PciReading:
        """All devices that report errors; one that is gone is left out."""
        if now_s >= self._list_due_s:
            self._list_due_s = now_s + LIST_EVERY_S
            self._kinds = list_devices(str(self.root))
        devices = {}
        for address, kind in self._kinds.items():
            errors = read_errors(f"{self.root}/{address}")
            if errors:
                devices[address] = PciDevice(
                    address, kind, errors, self._follow(address, errors, now_s)
                )
        return PciReading(devices)

    def _follow(self, address: str, errors: Mapping[str, int], now_s: float) -> dict[str, Trail]:
        trails = {}
        for severity, count in errors.items():
            known = self._trails.get((address, severity), Trail())
            trails[severity] = self._trails[address, severity] = known.then(now_s, count)
        return trails


def list_devices(root: str) -> dict[str, str]:
    """Address -> kind of what is watched and has AER. Raises OSError other than absence."""
    found = {address: kind_of(read_if_any(f"{root}/{address}/class")) for address in names_in(root)}
    return {
        address: kind
        for address, kind in found.items()
        if kind and Path(f"{root}/{address}/aer_dev_fatal").exists()
    }


def kind_of(class_code: str) -> str:
    """What a device with this class (`0x030200`) is to us; empty: nothing."""
    return next((kind for start, kind in _KINDS.items() if class_code.startswith(start)), "")


def read_errors(directory: str) -> dict[str, int]:
    """Severity -> errors so far; what can't be read is left out."""
    read = {name: parse_errors(read_if_any(f"{directory}/aer_dev_{name}")) for name in SEVERITIES}
    return {name: total for name, total in read.items() if total is not None}


def parse_errors(text: str) -> int | None:
    """The total of an `aer_dev_…` file (`BadTLP 3` and so on, at last `TOTAL_ERR_COR 3`); the sum
    of its lines where there is none. None when it has no number at all."""
    counts = {}
    for line in text.splitlines():
        name, _, value = line.rpartition(" ")
        if name and value.isascii() and value.isdecimal():
            counts[name] = int(value)
    totals = [count for name, count in counts.items() if name.startswith("TOTAL_ERR")]
    if totals:
        return totals[0]
    return sum(counts.values()) if counts else None
