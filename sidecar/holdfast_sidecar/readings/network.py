"""What the network interfaces said.

None and absence mean that it was not said, which is never the same as 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from holdfast_sidecar.readings.links import LinkStory


@dataclass(frozen=True)
class Interface:
    """One interface. Counters are since it came up; None: not said (a down link has no speed)."""

    name: str
    has_carrier: bool | None
    carrier_losses: int | None
    speed_bytes_per_s: float | None
    is_physical: bool
    counters: Mapping[str, int]
    carrier_changes: int | None = None
    """Losses and returns together."""
    operational_state: str = ""
    """RFC 2863's: up, down, lowerlayerdown, dormant, …"""
    mtu_bytes: int | None = None
    driver: str = ""
    pci: str = ""
    roce_ecn: str = ""
    """Priorities with congestion notification, as `np=3 rp=3`; empty: the driver has no such."""
    frames: Mapping[tuple[str, str, str], int] = field(default_factory=dict)
    """(`pause` or `discards`, direction, priority) -> frames, by the driver's own counters."""


@dataclass(frozen=True)
class NetworkReading:
    """All interfaces but loopback, by name."""

    interfaces: Mapping[str, Interface]
    links: Mapping[str, LinkStory] = field(default_factory=dict)
    """Of the physical ones, but for those on USB and over the air."""
