"""What of the host's own parts changes slowly: clock, heat, energy, errors of its memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from holdfast_sidecar.probes.clock import read_apart_s, read_clock
from holdfast_sidecar.probes.heat import read_energy, read_sensors
from holdfast_sidecar.probes.memory_errors import read_memory_errors
from holdfast_sidecar.readings.host import Clock, MemoryErrors, Sensor


@dataclass(frozen=True)
class Hardware:
    """Each absent or empty where the kernel does not tell it."""

    clock: Clock | None = None
    clock_apart_s: float | None = None
    errors: MemoryErrors | None = None
    sensors: tuple[Sensor, ...] = ()
    energy_j: Mapping[str, float] | None = None


@dataclass(frozen=True)
class HardwareProbe:
    """Reads below `sys`, and asks the kernel about the clock."""

    sys: Path
    name: str = "hardware"

    def read(self, now_s: float) -> Hardware:
        """All of it now."""
        return Hardware(
            clock=read_clock(),
            clock_apart_s=read_apart_s(),
            errors=read_memory_errors(self.sys),
            sensors=read_sensors(self.sys),
            energy_j=read_energy(self.sys),
        )
