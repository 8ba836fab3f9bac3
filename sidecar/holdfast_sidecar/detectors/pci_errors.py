"""PCIe errors of GPUs, NICs and NVSwitches: a riser, a cable or a slot that gives way."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast_sidecar.readings.fabric import PciDevice, PciReading
from holdfast_sidecar.readings.trail import Trail
from holdfast_sidecar.records.clock import Moment
from holdfast_sidecar.records.findings import Finding, Kind

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
        elif _is_storm(device.trails.get("correctable", Trail())):
            yield _finding(device, [_grown(device, "correctable")], 0.6, moment)


def _grown(device: PciDevice, severity: str) -> str:
    growth = device.trails.get(severity, Trail()).growth
    return f"{device.kind} {device.address}: {growth} {severity} PCIe errors" if growth else ""


def _is_storm(trail: Trail) -> bool:
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
