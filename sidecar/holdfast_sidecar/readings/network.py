"""What the network interfaces said.

None and absence mean that it was not said, which is never the same as 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


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
