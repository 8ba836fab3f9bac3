"""What RDMA ports, PCI devices and TCP said.

None and absence mean that it was not said, which is never the same as 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property

from holdfast_sidecar.readings.links import LinkStory
from holdfast_sidecar.readings.trail import Trail


class PortState(IntEnum):
    """Logical states that matter here (InfiniBand specification, PortInfo)."""

    DOWN = 1
    ACTIVE = 4


@dataclass(frozen=True)
class Device:
    """What does not change about an RDMA device."""

    name: str
    driver: str = ""
    board: str = ""
    firmware: str = ""
    pci: str = ""
    """As in sysfs: `0000:18:00.0`, lower case."""


@dataclass(frozen=True)
class Port:
    """One port of an RDMA device."""

    device: Device
    number: int
    link_layer: str = ""
    """InfiniBand or Ethernet (RoCE); others say Unspecified (EFA)."""
    state: int | None = None
    physical_state: int | None = None
    rate_bytes_per_s: float | None = None
    counters: Mapping[str, int] = field(default_factory=dict)
    """By the kernel's names; `port_xmit_data` and `port_rcv_data` in bytes."""

    @property
    def name(self) -> str:
        """`mlx5_0/1`."""
        return f"{self.device.name}/{self.number}"

    @property
    def is_up(self) -> bool | None:
        """Whether it carries traffic."""
        return None if self.state is None else self.state >= PortState.ACTIVE


@dataclass(frozen=True)
class FabricReading:
    """All RDMA ports that are read, by name."""

    ports: Mapping[str, Port] = field(default_factory=dict)
    links: Mapping[str, LinkStory] = field(default_factory=dict)
    """Also of ports that are gone."""
    trails: Mapping[str, Mapping[str, Trail]] = field(default_factory=dict)
    """Port -> error counter -> how it went."""
    since_s: float = 0.0
    """CLOCK_MONOTONIC of the first reading: only then could a port be seen to come up."""

    @cached_property
    def grown(self) -> Mapping[str, Mapping[str, Trail]]:
        """Those trails alone that grew, by port; worked out once for however many judge it."""
        grown = {port: _grown(trails) for port, trails in self.trails.items()}
        return {port: trails for port, trails in grown.items() if trails}


@dataclass(frozen=True)
class PciDevice:
    """Errors that one device reported on its PCIe link (AER), by severity."""

    address: str
    """As in sysfs: `0000:18:00.0`."""
    kind: str
    """`gpu`, `nic` or `bridge` (NVSwitch)."""
    errors: Mapping[str, int] = field(default_factory=dict)
    """`correctable`, `nonfatal`, `fatal` -> how many."""
    trails: Mapping[str, Trail] = field(default_factory=dict)


@dataclass(frozen=True)
class PciReading:
    """NICs, GPUs and NVSwitches that report errors, by address."""

    devices: Mapping[str, PciDevice] = field(default_factory=dict)

    @cached_property
    def troubled(self) -> tuple[PciDevice, ...]:
        """Those whose errors grew; worked out once for however many judge it."""
        return tuple(device for device in self.devices.values() if _grown(device.trails))


@dataclass(frozen=True)
class TcpReading:
    """Segments that ranks had to send again, and those of all sockets in this network."""

    by_rank: Mapping[int, int] = field(default_factory=dict)
    """Rank -> since its process was first seen; without ranks in another network namespace."""
    of_host: int | None = None


def _grown(trails: Mapping[str, Trail]) -> dict[str, Trail]:
    return {name: trail for name, trail in trails.items() if trail.growth}
