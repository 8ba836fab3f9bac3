"""PCIe errors that devices report to the kernel (Advanced Error Reporting), from sysfs.

Only GPUs, NICs and NVSwitches, and only those whose driver and root port have AER at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from holdfast_sidecar.components.network.readings import PciDevice, PciReading, RateWindow
from holdfast_sidecar.linux.files import names_in, read_if_any
from holdfast_sidecar.linux.probe_runner import PartlyReadError
from holdfast_sidecar.records.findings import Finding, Kind, Moment

EVERY_S = 10.0
"""Errors are judged by the minute."""

LIST_EVERY_S = 300.0
"""A host has hundreds of PCI devices, and they hardly ever change."""

SEVERITIES = ("correctable", "nonfatal", "fatal")

MOST = 2**53
"""The kernel counts one interrupt after the other: at a million a second this takes 285 years."""

MOST_DIGITS = 20
"""Of a number of 64 bits; any more are no count, and what is cut off leaves it above MOST."""

_KINDS = {"0x02": "nic", "0x03": "gpu", "0x0680": "bridge"}
"""By class code: network, display (3D controllers too), and `other bridge`, which NVSwitch is."""


@dataclass
class PciProbe:
    """Reads sysfs under `root` (/sys/bus/pci/devices). No such directory: there is no PCI."""

    root: Path = Path("/sys/bus/pci/devices")
    name: str = "pci"
    _kinds: Mapping[str, str] = field(default_factory=dict)
    _trails: dict[tuple[str, str], RateWindow] = field(default_factory=dict)
    _list_due_s: float = float("-inf")

    def read(self, now_s: float) -> PciReading:
        """All devices that report errors; one that is gone is left out. PartlyReadError where a
        count makes no sense."""
        if now_s >= self._list_due_s:
            self._list_due_s = now_s + LIST_EVERY_S
            self._kinds = list_devices(str(self.root))
        devices, wrong = {}, []
        for address, kind in self._kinds.items():
            errors, senseless = read_errors(f"{self.root}/{address}")
            wrong += [f"{address}: {what}" for what in senseless]
            if errors:
                devices[address] = PciDevice(
                    address, kind, errors, self._follow(address, errors, now_s)
                )
        if wrong:
            raise PartlyReadError(PciReading(devices), "; ".join(wrong))
        return PciReading(devices)

    def _follow(
        self, address: str, errors: Mapping[str, int], now_s: float
    ) -> dict[str, RateWindow]:
        trails = {}
        for severity, count in errors.items():
            known = self._trails.get((address, severity), RateWindow())
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


def read_errors(directory: str) -> tuple[dict[str, int], list[str]]:
    """Severity -> errors so far, without what can't be read; and what says something senseless."""
    errors, senseless = {}, []
    for severity in SEVERITIES:
        text = read_if_any(f"{directory}/aer_dev_{severity}")
        total = parse_errors(text)
        if total is not None:
            errors[severity] = total
        elif text:
            senseless.append(f"aer_dev_{severity} ends in {text.strip()[-40:]!r}")
    return errors, senseless


def parse_errors(text: str) -> int | None:
    """The total of an `aer_dev_…` file (`BadTLP 3` and so on, at last `TOTAL_ERR_COR 3`); the sum
    of its lines where there is none. None when it has no number at all, or one that can't be."""
    counts = {}
    for line in text.splitlines():
        name, _, value = line.rpartition(" ")
        if name and value.isascii() and value.isdecimal():
            counts[name] = int(value[:MOST_DIGITS])
    totals = [count for name, count in counts.items() if name.startswith("TOTAL_ERR")]
    total = totals[0] if totals else sum(counts.values())
    return total if counts and total <= MOST else None


# PCIe errors of GPUs, NICs and NVSwitches: a riser, a cable or a slot that gives way.

MOST_CORRECTABLE_PER_MINUTE = 31
"""A link at the bit error rate that PCIe allows (1e-12) replays so often at most: generation 5,
16 lanes, 32 GT/s each; DCGM's limit for the same. Slower links are allowed less, and told late."""

FEWEST_MINUTES = 3
"""Of steady growth: retraining after a reset makes a burst."""


def find_pci_errors(pci: PciReading | None, moment: Moment) -> Iterator[Finding]:
    """Devices that reported errors in the last ten minutes."""
    if pci is None:
        return
    for device in pci.troubled:
        lost = [text for severity in ("fatal", "nonfatal") if (text := _grown(device, severity))]
        if lost:
            yield _finding(device, lost, 0.9, moment)
        elif _is_storm(device.trails.get("correctable", RateWindow())):
            yield _finding(device, [_grown(device, "correctable")], 0.6, moment)


def _grown(device: PciDevice, severity: str) -> str:
    growth = device.trails.get(severity, RateWindow()).growth
    return f"{device.kind} {device.address}: {growth} {severity} PCIe errors" if growth else ""


def _is_storm(trail: RateWindow) -> bool:
    minutes = trail.length_s / 60
    return (
        trail.minutes_of_growth >= FEWEST_MINUTES
        and trail.growth > MOST_CORRECTABLE_PER_MINUTE * minutes
    )


def _finding(device: PciDevice, texts: list[str], sure: float, moment: Moment) -> Finding:
    evidence = [f"{text} in the last minutes" for text in texts]
    return Finding(
        Kind.PCI_ERRORS,
        moment.node,
        moment.now_unix_s,
        sure,
        evidence=evidence,
        what=device.address,
    )
