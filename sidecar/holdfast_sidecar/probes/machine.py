"""The probes of the machine itself, each with its rhythm; the ranks have their own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from holdfast_sidecar.probes.runner import ProbeRunner
from holdfast_sidecar.readings.gpu import GpuReading
from holdfast_sidecar.readings.gpu_events import GpuEvents
from holdfast_sidecar.readings.host import HostReading
from holdfast_sidecar.readings.machine import MachineReading, ProbeHealth
from holdfast_sidecar.readings.network import NetworkReading

EVERY_S = 5.0
"""Often enough for a scrape every 15 s, rare enough to cost nothing."""

T = TypeVar("T")


@dataclass(frozen=True)
class MachineProbes:
    """The tuple of them, by name. None: this part is not looked at."""

    host: ProbeRunner[HostReading]
    network: ProbeRunner[NetworkReading]
    gpu: ProbeRunner[GpuReading | None]
    gpu_events: ProbeRunner[GpuEvents] | None = None

    def read(self, now_s: float) -> MachineReading:
        """The newest values; whatever is due is read anew."""
        return MachineReading(
            host=self.host.read(now_s),
            network=self.network.read(now_s),
            gpu=self.gpu.read(now_s),
            gpu_events=_read(self.gpu_events, now_s),
            failing=tuple(health for health in self.health() if not health.is_up),
        )

    def health(self) -> tuple[ProbeHealth, ...]:
        """How each of them fares."""
        optional = (self.gpu_events,)
        return (
            self.host.health,
            self.network.health,
            self.gpu.health,
            *(runner.health for runner in optional if runner is not None),
        )

    def close(self) -> None:
        """End the children of those that have some."""
        self.gpu.close()
        if self.gpu_events is not None:
            self.gpu_events.close()


def _read(runner: ProbeRunner[T] | None, now_s: float) -> T | None:
    return None if runner is None else runner.read(now_s)
