"""What the machine said, all parts together, and how its probes fare."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from holdfast_sidecar.kernel_events import KernelEvents
from holdfast_sidecar.linux.kmsg import KernelReading
from holdfast_sidecar.readings.fabric import FabricReading, PciReading, TcpReading
from holdfast_sidecar.readings.gpu import GpuReading
from holdfast_sidecar.readings.gpu_events import GpuEvents
from holdfast_sidecar.readings.host import HostReading
from holdfast_sidecar.readings.network import NetworkReading
from holdfast_sidecar.readings.round_trips import RoundTrips
from holdfast_sidecar.readings.xids import XidReading
from holdfast_sidecar.records.reports import ProbeHealth
from holdfast_sidecar.records.steps import Standing


@dataclass(frozen=True)
class MachineReading:
    """What the machine said last. None: not read yet, or its probe fails just now."""

    host: HostReading | None = None
    network: NetworkReading | None = None
    gpu: GpuReading | None = None
    failing: tuple[ProbeHealth, ...] = ()
    fabric: FabricReading | None = None
    pci: PciReading | None = None
    tcp: TcpReading | None = None
    kernel_events: KernelEvents | None = None
    """None: the kernel's log is not read."""
    round_trips: RoundTrips | None = None
    """None: there is no other node."""
    kernel: KernelReading | None = None
    xids: XidReading = field(default_factory=XidReading)
    gpu_events: GpuEvents | None = None
    throttled_s: Mapping[int, float] = field(default_factory=dict)
    """Of the ranks that are under a CPU quota: for how long it kept them from running so far."""
    layouts: Mapping[int, Standing] = field(default_factory=dict)
    """Of the ranks that say where they stand in the job."""
