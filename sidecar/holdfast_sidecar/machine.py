"""What the machine said: plain data between probes, detectors and metrics.

None and absence mean that it was not said, which is never the same as 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Pressure:
    """Pressure stall information of one resource (Documentation/accounting/psi).

    Seconds since boot in which some, or all, tasks waited; the averages are shares over 10 s.
    """

    waiting_s: float
    stalled_s: float | None
    waiting_10s_ratio: float
    stalled_10s_ratio: float | None


@dataclass(frozen=True)
class Room:
    """A file system: its size and what an ordinary user may still write, bytes."""

    size_bytes: int
    available_bytes: int


@dataclass(frozen=True)
class HostReading:
    """What the host says now."""

    cpu_s: Mapping[str, float]
    """CPU seconds since boot by mode."""
    cpus: int
    load_1m: float
    memory_size_bytes: int
    memory_available_bytes: int
    swap_used_bytes: int
    boot_unix_s: float
    pressure: Mapping[str, Pressure] = field(default_factory=dict)
    """By resource; empty on a kernel without PSI."""
    rooms: Mapping[str, Room] = field(default_factory=dict)
    """By purpose: `shm`, `checkpoint`, `state`."""
    oom_kills: int | None = None


@dataclass(frozen=True)
class Interface:
    """One interface. Counters are since it came up; None: not said (a down link has no speed)."""

    name: str
    has_carrier: bool | None
    carrier_losses: int | None
    speed_bytes_per_s: float | None
    is_physical: bool
    counters: Mapping[str, int]


@dataclass(frozen=True)
class NetworkReading:
    """All interfaces but loopback, by name."""

    interfaces: Mapping[str, Interface]


@dataclass(frozen=True)
class Gpu:
    """One GPU. None: this GPU or driver doesn't say."""

    index: int
    uuid: str
    model: str
    pci: str
    busy_ratio: float | None = None
    memory_size_bytes: int | None = None
    memory_used_bytes: int | None = None
    temperature_celsius: float | None = None
    power_watts: float | None = None
    power_limit_watts: float | None = None
    sm_clock_hertz: float | None = None
    ecc_uncorrected: int | None = None
    ecc_corrected: int | None = None
    processes: int | None = None
    users: tuple[int, ...] = ()
    """Pids of the processes that compute on it, where the driver tells them."""


@dataclass(frozen=True)
class GpuReading:
    """All GPUs. Without a driver `is_present` is False and there are none."""

    is_present: bool
    driver: str = ""
    gpus: tuple[Gpu, ...] = ()


@dataclass(frozen=True)
class ProbeHealth:
    """How a probe fares. Times are monotonic seconds."""

    name: str
    is_up: bool
    failures: int
    duration_s: float
    error: str = ""
    failing_since_s: float = 0.0


@dataclass(frozen=True)
class MachineReading:
    """What the machine said last. None: not read yet, or its probe fails just now."""

    host: HostReading | None = None
    network: NetworkReading | None = None
    gpu: GpuReading | None = None
    failing: tuple[ProbeHealth, ...] = ()
