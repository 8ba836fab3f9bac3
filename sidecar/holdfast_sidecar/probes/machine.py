"""The probes of the machine itself, each with its rhythm; the ranks have their own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from holdfast_sidecar.probes.runner import ProbeRunner
from holdfast_sidecar.readings.gpu import GpuReading
from holdfast_sidecar.readings.host import HostReading
from holdfast_sidecar.readings.machine import MachineReading, ProbeHealth
from holdfast_sidecar.readings.network import NetworkReading

EVERY_S = 5.0
"""Often enough for a scrape every 15 s, rare enough to cost nothing."""


@dataclass(frozen=True)
class MachineProbes:
    """The tuple of them, by name."""

    host: ProbeRunner[HostReading]
    network: ProbeRunner[NetworkReading]
    gpu: ProbeRunner[GpuReading]
    host_parts: Callable[[], tuple[ProbeHealth, ...]] = tuple
    """How the parts of the host with rhythms of their own fare."""

    def read(self, now_s: float) -> MachineReading:
        """The newest values; whatever is due is read anew."""
        host, network, gpu = self.host.read(now_s), self.network.read(now_s), self.gpu.read(now_s)
        failing = tuple(health for health in self.health() if not health.is_up)
        return MachineReading(host, network, gpu, failing)

    def health(self) -> tuple[ProbeHealth, ...]:
        """How each of them fares."""
        return (self.host.health, *self.host_parts(), self.network.health, self.gpu.health)
