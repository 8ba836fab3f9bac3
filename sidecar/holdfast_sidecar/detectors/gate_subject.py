"""What the gate judges a node by, and what one of its checks may say of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from holdfast_sidecar.config.settings import GateSettings
from holdfast_sidecar.detectors.pci_links import LinkMemory
from holdfast_sidecar.readings.gpu import GpuReading
from holdfast_sidecar.readings.machine import MachineReading
from holdfast_sidecar.records.findings import Finding
from holdfast_sidecar.records.reports import Exertion

GPU_PROBE, HOST_PROBE = "gpu", "host"
"""Names of the probes without which checks are blind."""


@dataclass(frozen=True)
class Subject:
    """What the gate judges by."""

    machine: MachineReading
    settings: GateSettings = field(default_factory=GateSettings)
    findings: Sequence[Finding] = ()
    """Of this node, as of this tick."""
    links: LinkMemory = field(default_factory=LinkMemory)
    exertion: Exertion | None = None
    """The newest test that it was put to."""
    far_behind: Sequence[str] = ()
    """What of that lies far behind the other nodes."""
    clock_off_s: float = 0.0
    """By how much its wall clock is wrong, if most other nodes say so; ahead is positive."""

    @property
    def gpus(self) -> GpuReading | None:
        """What the driver says now; None while it says nothing that is fresh."""
        reading = self.machine.gpu
        is_fresh = reading is not None and reading.stale_since_s is None
        return reading if is_fresh else None


class BlindError(Exception):
    """A check can't be made, and why."""


class Seen(NamedTuple):
    """What is wrong, with which GPU (its UUID; empty: with the node), and whether an attempt would
    run all the same: see Trouble."""

    what: str
    gpu: str = ""
    works: bool = False


Found = Iterator[Seen]


def why_silent(subject: Subject, probe: str) -> str:
    """Why this probe says nothing; empty: it was not its turn yet."""
    failing = (health for health in subject.machine.failing if health.name == probe)
    return next((health.error or "its probe fails" for health in failing), "")
