"""What RDMA ports, PCI devices and TCP said.

None and absence mean that it was not said, which is never the same as 0.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from itertools import pairwise

# What became of a link since this sidecar started: whether it was ever up, is gone, came back.
#
# The same for RDMA ports and for network interfaces. Times are monotonic seconds.

REMEMBERED_S = 12 * 3600.0
"""Flaps within half a day belong together: what loosens a plug (heat, vibration) goes by the
day's rhythm. gpud's span."""

MOST_FLAPS = 32
"""More are not told from each other."""


@dataclass(frozen=True)
class LinkLook:
    """One link, looked at once. None: it did not say."""

    is_up: bool | None
    downs: int | None = None
    """How often it went down, by the kernel's count: tells of flaps between two looks."""
    rate_bytes_per_s: float | None = None
    kind: str = ""
    """Links of one kind (the same board) are compared with each other; empty: it has no like."""


@dataclass(frozen=True)
class LinkStory:
    """One link's past."""

    name: str
    look: LinkLook = LinkLook(None)
    was_up: bool = False
    down_since_s: float | None = None
    is_there: bool = True
    """False: its device is gone from the machine."""
    flaps_s: tuple[float, ...] = ()
    """When it came back, each time."""
    best_rate: float = 0.0
    rate: float = 0.0
    """The last one told while it was up, bytes per second."""
    rate_since_s: float = 0.0

    def seen(self, look: LinkLook, now_s: float) -> LinkStory:
        """The story with one more look."""
        if look == self.look and self._is_steady and look.rate_bytes_per_s in (self.rate, None):
            return self
        known = tuple(at_s for at_s in self.flaps_s if at_s >= now_s - REMEMBERED_S)
        told = dataclasses.replace(self, look=self._kept(look), is_there=True, flaps_s=known)
        if look.is_up is None:
            return told
        if not look.is_up:
            since_s = now_s if self.down_since_s is None else self.down_since_s
            return dataclasses.replace(told, down_since_s=since_s if self.was_up else None)
        came_back = self.was_up and (self.down_since_s is not None or self._fell_meanwhile(look))
        flaps = (*known, now_s)[-MOST_FLAPS:] if came_back else known
        risen = dataclasses.replace(told, was_up=True, down_since_s=None, flaps_s=flaps)
        return risen._running_at(look.rate_bytes_per_s, now_s)

    @property
    def _is_steady(self) -> bool:
        """Up as ever, and nothing of its past is to be forgotten."""
        is_up = self.is_there and self.look.is_up is True and self.was_up
        return is_up and self.down_since_s is None and not self.flaps_s

    def vanished(self, now_s: float) -> LinkStory:
        """Its device is not listed any more: as good as down."""
        return dataclasses.replace(self.seen(LinkLook(is_up=False), now_s), is_there=False)

    def _kept(self, look: LinkLook) -> LinkLook:
        """The look; what it leaves out is as it was (a file that can't be read just now)."""
        return LinkLook(
            look.is_up if look.is_up is not None else self.look.is_up,
            look.downs if look.downs is not None else self.look.downs,
            look.rate_bytes_per_s,
            look.kind or self.look.kind,
        )

    def _fell_meanwhile(self, look: LinkLook) -> bool:
        """By a counter that grew. One that is lower was set back, and says nothing."""
        before = self.look.downs
        return look.downs is not None and before is not None and look.downs > before

    def _running_at(self, rate: float | None, now_s: float) -> LinkStory:
        if not rate or rate == self.rate:
            return self
        best = max(self.best_rate, rate)
        return dataclasses.replace(self, rate=rate, rate_since_s=now_s, best_rate=best)


# What the network interfaces said.
#
# None and absence mean that it was not said, which is never the same as 0.


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


# How a counter went in the last ten minutes: a few samples of it, a minute apart.

SPAN_S = 600.0
"""What went wrong longer ago is over."""

SPACING_S = 60.0
"""So that ten minutes are eleven numbers, and a burst of a second falls into one of them."""


@dataclass(frozen=True)
class RateWindow:
    """(monotonic seconds, value), oldest first; the newest is as of the last reading."""

    samples: tuple[tuple[float, int], ...] = ()

    def then(self, at_s: float, value: int) -> RateWindow:
        """With the next value. One that is lower than the last was set back (a driver that was
        loaded anew): what was before says nothing then."""
        kept = tuple(sample for sample in self.samples if sample[0] >= at_s - SPAN_S - SPACING_S)
        if kept and value < kept[-1][1]:
            kept = ()
        if len(kept) > 1 and kept[-1][0] - kept[-2][0] < SPACING_S:
            kept = kept[:-1]
        return RateWindow((*kept, (at_s, value)))

    @property
    def growth(self) -> int:
        """By how much it grew over all of it."""
        return self.samples[-1][1] - self.samples[0][1] if self.samples else 0

    @property
    def minutes_of_growth(self) -> int:
        """In how many of the intervals it grew: a burst grows in one, at most in two."""
        values = [value for _, value in self.samples]
        return sum(later > earlier for earlier, later in pairwise(values))

    @property
    def length_s(self) -> float:
        """From the first sample to the newest, seconds."""
        return self.samples[-1][0] - self.samples[0][0] if self.samples else 0.0


class PortState(IntEnum):
    """Logical states that matter here (InfiniBand specification, PortInfo)."""

    DOWN = 1
    ACTIVE = 4


@dataclass(frozen=True)
class RdmaDevice:
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

    device: RdmaDevice
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
    trails: Mapping[str, Mapping[str, RateWindow]] = field(default_factory=dict)
    """Port -> error counter -> how it went."""
    since_s: float = 0.0
    """CLOCK_MONOTONIC of the first reading: only then could a port be seen to come up."""

    @cached_property
    def grown(self) -> Mapping[str, Mapping[str, RateWindow]]:
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
    trails: Mapping[str, RateWindow] = field(default_factory=dict)


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


def _grown(trails: Mapping[str, RateWindow]) -> dict[str, RateWindow]:
    return {name: trail for name, trail in trails.items() if trail.growth}
