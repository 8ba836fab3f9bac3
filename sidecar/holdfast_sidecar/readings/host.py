"""What the host said.

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
