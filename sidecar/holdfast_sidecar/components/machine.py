"""What the kernel's log says of a node's parts, besides XIDs: counted, and the newest kept.

Lines are matched by their beginning and a few words of the driver; what the kernel changes around
them does not matter. Knows nothing of how the log is read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from holdfast_sidecar.components.gpu.readings import GpuReading
from holdfast_sidecar.components.host.readings import HostReading
from holdfast_sidecar.components.network.readings import (
    FabricReading,
    NetworkReading,
    PciReading,
    TcpReading,
)
from holdfast_sidecar.components.network.round_trip_checks import RoundTrips
from holdfast_sidecar.components.xid.checks import XidReading
from holdfast_sidecar.components.xid.events import GpuEvents
from holdfast_sidecar.linux.kmsg import KernelReading
from holdfast_sidecar.linux.probe_runner import ProbeRunner
from holdfast_sidecar.records.reports import ProbeHealth
from holdfast_sidecar.records.steps import RankPlacement

_PCI = re.compile(r"\b([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])\b")

PATTERNS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("mlx5_power", re.compile(r"mlx5_core .*Detected insufficient power on the PCIe slot")),
    ("mlx5_heat", re.compile(r"mlx5_core .*Port module event.*High Temperature", re.IGNORECASE)),
    ("mlx5_refused", re.compile(r"mlx5_core .*mlx5_cmd_out_err.*ACCESS_REG.*failed")),
    ("mlx5_fatal", re.compile(r"mlx5_core .*(health_care|device's health compromised)")),
    ("pcie_error", re.compile(r"pcieport .*AER: .*(error|Error)")),
    ("memory_error", re.compile(r"(EDAC .*\b[CU]E\b|mce: .*Hardware Error)")),
    ("hung_task", re.compile(r"INFO: task .* blocked for more than \d+ seconds")),
    ("nfs_silent", re.compile(r"nfs: server .* not responding")),
    ("lustre_error", re.compile(r"LustreError: ")),
    ("nvme_timeout", re.compile(r"nvme nvme\d+: .*\btimeout\b")),
    (
        "disk_read_only",
        re.compile(
            r"(EXT4-fs|BTRFS|XFS)\b.*"
            r"(Remounting filesystem read-only|forced readonly|Shutting down filesystem"
            r"|[Ff]ilesystem has been shut down)"
        ),
    ),
    ("lockup", re.compile(r"(NMI )?watchdog: .*(soft lockup|hard LOCKUP)")),
    ("nccl_crash", re.compile(r"\S+\[\d+\]: segfault at .* in libnccl")),
)
"""Event -> how its line is known. The mlx5 ones are those that gpud looks for, and firmware that
gave up. Those of local disks, stuck processors and NCCL are only counted."""


class Logged(Protocol):
    """A record of the kernel's log."""

    @property
    def text(self) -> str:
        """The line, without level and time."""

    @property
    def at_unix_s(self) -> float:
        """When it was logged."""


@dataclass(frozen=True)
class KernelEvent:
    """One of them."""

    event: str
    pci: str
    """As in sysfs: `0000:18:00.0`; empty: it is about no PCI device."""
    text: str
    at_unix_s: float


@dataclass(frozen=True)
class KernelEvents:
    """All since this sidecar started, and what of them was in the log before."""

    counts: Mapping[str, int] = field(default_factory=lambda: {name: 0 for name, _ in PATTERNS})
    newest: Mapping[tuple[str, str], KernelEvent] = field(default_factory=dict)
    """(event, PCI address) -> the last one."""

    def then(self, records: Iterable[Logged]) -> KernelEvents:
        """With these records."""
        found = [event for one in records if (event := parse_event(one)) is not None]
        if not found:
            return self
        counts, newest = dict(self.counts), dict(self.newest)
        for event in found:
            counts[event.event] += 1
            newest[event.event, event.pci] = event
        return KernelEvents(counts, newest)


def parse_event(record: Logged) -> KernelEvent | None:
    """The event that a line tells of; None: none of ours."""
    for name, pattern in PATTERNS:
        if pattern.match(record.text):
            address = _PCI.search(record.text)
            return KernelEvent(name, address[1] if address else "", record.text, record.at_unix_s)
    return None


# The probes of the machine itself, each with its rhythm; the ranks have their own.

# What the machine said, all parts together, and how its probes fare.


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
    layouts: Mapping[int, RankPlacement] = field(default_factory=dict)
    """Of the ranks that say where they stand in the job."""


EVERY_S = 5.0
"""Often enough for a scrape every 15 s, rare enough to cost nothing."""

LINKS_EVERY_S = 1.0
"""How soon a link that is gone is noticed: the window for a drop begins there. One file a port."""

T = TypeVar("T")


@dataclass(frozen=True)
class MachineProbes:
    """The tuple of them, by name. None: this part is not looked at."""

    host: ProbeRunner[HostReading]
    network: ProbeRunner[NetworkReading]
    gpu: ProbeRunner[GpuReading | None]
    fabric: ProbeRunner[FabricReading] | None = None
    pci: ProbeRunner[PciReading] | None = None
    tcp: ProbeRunner[TcpReading] | None = None
    kernel: ProbeRunner[KernelReading] | None = None
    gpu_events: ProbeRunner[GpuEvents] | None = None
    throttling: ProbeRunner[dict[int, float]] | None = None
    layouts: ProbeRunner[dict[int, RankPlacement]] | None = None
    host_parts: Callable[[], tuple[ProbeHealth, ...]] = tuple
    """How the parts of the host with rhythms of their own fare."""

    def read(self, now_s: float) -> MachineReading:
        """The newest values; whatever is due is read anew."""
        return MachineReading(
            host=self.host.read(now_s),
            network=self.network.read(now_s),
            gpu=self.gpu.read(now_s),
            gpu_events=_read(self.gpu_events, now_s),
            fabric=_read(self.fabric, now_s),
            pci=_read(self.pci, now_s),
            tcp=_read(self.tcp, now_s),
            kernel=_read(self.kernel, now_s),
            throttled_s={} if self.throttling is None else self.throttling.read(now_s) or {},
            layouts={} if self.layouts is None else self.layouts.read(now_s) or {},
            failing=tuple(health for health in self.health() if not health.is_up),
        )

    def health(self) -> tuple[ProbeHealth, ...]:
        """How each of them fares."""
        optional = (
            *(self.fabric, self.pci, self.tcp, self.kernel, self.gpu_events),
            *(self.throttling, self.layouts),
        )
        return (
            self.host.health,
            *self.host_parts(),
            self.network.health,
            self.gpu.health,
            *(runner.health for runner in optional if runner is not None),
        )

    def close(self) -> None:
        """End what some of them have of their own: children, a thread."""
        for runner in (self.gpu, self.gpu_events, self.kernel):
            if runner is not None:
                runner.close()


def _read(runner: ProbeRunner[T] | None, now_s: float) -> T | None:
    return None if runner is None else runner.read(now_s)
