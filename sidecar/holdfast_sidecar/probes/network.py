"""Network interfaces: what passed, what went wrong, and whether the link is there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from holdfast_sidecar.linux.files import link_name, list_names, read_if_any, read_text
from holdfast_sidecar.probes.ethtool import read_driver_counters
from holdfast_sidecar.readings.links import LinkLook, LinkStory
from holdfast_sidecar.readings.network import Interface, NetworkReading

LOOPBACK_TYPE = 772
"""ARPHRD_LOOPBACK: it has no cable to lose."""

COUNTERS = (
    "rx_bytes",
    "tx_bytes",
    "rx_errors",
    "tx_errors",
    "rx_dropped",
    "tx_dropped",
)

RARELY_S = 30.0
"""How often a driver is asked for all of its counters, which it answers with a firmware command
each for some (mlx5), and for what people configure: twice a minute is enough to see a storm."""

MOST_PAIRS = 8
"""Virtual interfaces without a kind of their own (ends of pairs, tunnels). A container has one or
two; a host has one for each of hundreds, which come and go: ten series each, never the same."""

Frames = Mapping[tuple[str, str, str], int]


@dataclass(frozen=True)
class _Rare:
    """What is read twice a minute of one interface."""

    driver: str = ""
    pci: str = ""
    roce_ecn: str = ""
    frames: Frames = field(default_factory=dict)
    is_of_machine: bool = False


@dataclass
class NetworkProbe:
    """Reads sysfs under `root` (/sys/class/net)."""

    root: Path = Path("/sys/class/net")
    read_frames: Callable[[str], Frames] = read_driver_counters
    name: str = "network"
    _rare: dict[str, _Rare] = field(default_factory=dict)
    _rare_due_s: float = float("-inf")
    _links: dict[str, LinkStory] = field(default_factory=dict)

    def read(self, now_s: float) -> NetworkReading:
        """Every interface now; one that vanishes while being read is left out."""
        names = worth_telling(self.root, sorted(entry.name for entry in self.root.iterdir()))
        found = [one for name in names if (one := read_interface(self.root / name)) is not None]
        if now_s >= self._rare_due_s:
            self._rare_due_s = now_s + RARELY_S
            self._rare = {one.name: self._read_rare(one) for one in found if one.is_physical}
        interfaces = {one.name: self._completed(one) for one in found}
        self._links = {
            one.name: self._links.get(one.name, LinkStory(one.name)).seen(_link(one), now_s)
            for one in found
            if self._rare.get(one.name, _Rare()).is_of_machine
        }
        return NetworkReading(interfaces, dict(self._links))

    def _completed(self, one: Interface) -> Interface:
        rare = self._rare.get(one.name, _Rare())
        return replace(
            one, driver=rare.driver, pci=rare.pci, roce_ecn=rare.roce_ecn, frames=rare.frames
        )

    def _read_rare(self, one: Interface) -> _Rare:
        directory = f"{self.root}/{one.name}"
        try:
            frames = self.read_frames(one.name)
        except OSError:
            frames = {}  # the driver has none, or keeps them to itself
        return _Rare(
            driver=link_name(f"{directory}/device/driver"),
            pci=link_name(f"{directory}/device"),
            roce_ecn=read_roce_ecn(f"{directory}/ecn"),
            frames=frames,
            is_of_machine=is_of_machine(directory),
        )


def is_of_machine(directory: str) -> bool:
    """Whether what becomes of its link is the machine's affair. Ranks don't talk over USB (a dock,
    or the service processor, which goes away when that starts anew) nor over the air."""
    is_on_usb = link_name(f"{directory}/device/subsystem") == "usb"
    return not is_on_usb and not Path(f"{directory}/phy80211").exists()


def worth_telling(root: Path, names: list[str]) -> list[str]:
    """Without the host's ends of its containers' interfaces, where there are many."""
    pairs = {name for name in names if _is_pair(f"{root}/{name}")}
    return [name for name in names if name not in pairs] if len(pairs) > MOST_PAIRS else names


def read_interface(directory: Path) -> Interface | None:
    """One interface; None for loopback and for what is no interface (bonding_masters)."""
    kind = _read_number(f"{directory}/type")
    if kind is None or kind == LOOPBACK_TYPE:
        return None
    counters = {name: _read_number(f"{directory}/statistics/{name}") for name in COUNTERS}
    carrier = _read_number(f"{directory}/carrier")
    speed_mbit = _read_number(f"{directory}/speed")
    return Interface(
        name=directory.name,
        has_carrier=None if carrier is None else carrier == 1,
        carrier_losses=_read_number(f"{directory}/carrier_down_count"),
        speed_bytes_per_s=speed_mbit * 1e6 / 8 if speed_mbit and speed_mbit > 0 else None,
        is_physical=(directory / "device").exists(),
        counters={name: value for name, value in counters.items() if value is not None},
        carrier_changes=_read_number(f"{directory}/carrier_changes"),
        operational_state=read_if_any(f"{directory}/operstate").strip(),
        mtu_bytes=_read_number(f"{directory}/mtu"),
    )


def read_roce_ecn(directory: str) -> str:
    """For which priorities congestion is notified (np) and heeded (rp): mlx5's `ecn` directory."""
    told = []
    for role in ("np", "rp"):
        switches = f"{directory}/roce_{role}/enable"
        priorities = list_names(switches)
        enabled = [one for one in priorities if read_if_any(f"{switches}/{one}").strip() == "1"]
        if priorities:
            told.append(f"{role}={','.join(enabled)}")
    return " ".join(told)


def _is_pair(directory: str) -> bool:
    """Neither hardware nor of a kind (bond, vlan, bridge) that the kernel names."""
    is_interface = Path(f"{directory}/type").exists() and not Path(f"{directory}/device").exists()
    return is_interface and "DEVTYPE=" not in read_if_any(f"{directory}/uevent")


def _link(one: Interface) -> LinkLook:
    return LinkLook(one.has_carrier, one.carrier_losses, one.speed_bytes_per_s)


def _read_number(path: str) -> int | None:
    """A number from sysfs; None when absent or when the driver refuses (carrier while down)."""
    try:
        return int(read_text(path).split(None, 1)[0])
    except (OSError, ValueError, IndexError):
        return None
