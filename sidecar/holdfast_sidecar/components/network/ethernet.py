"""Network interfaces: what passed, what went wrong, and whether the link is there."""

from __future__ import annotations

import array
import fcntl
import re
import socket
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from holdfast_sidecar.components.network.readings import (
    Interface,
    LinkLook,
    LinkStory,
    NetworkReading,
)
from holdfast_sidecar.linux.files import link_name, list_names, read_if_any, read_text

# A driver's own counters of an interface (`ethtool -S`), by ioctl: pause frames and discards.
#
# Only what tells of congestion is kept; a driver has up to thousands of them.

SIOCETHTOOL = 0x8946
GET_SET_INFO = 0x37
GET_STRINGS = 0x1B
GET_STATS = 0x1D
STATS_SET = 1

NAME_BYTES = 32
MOST_COUNTERS = 20_000
"""mlx5 with 64 queues has 3,000; a count above this is garbage."""

SPARE = 4096
"""Counters for which there is room beyond the driver's count: the kernel writes as many as there
are then, whatever was asked for, and queues may have been added since they were counted."""

_PRIORITY = re.compile(
    r"(?P<direction>rx|tx)_(?:prio(?P<a>[0-7])_pause"  # mlx5
    r"|pfc_(?:ena_)?frames_pri(?P<b>[0-7])"  # bnxt_en
    r"|priority_(?P<c>[0-7])_xoff(?:\.nic)?)"  # ice
)
_GLOBAL = re.compile(
    r"(?P<direction>rx|tx)_(?:pause_ctrl_phy|global_pause|pause_frames|flow_control_xoff(?:\.nic)?)"
)
_DISCARDS = re.compile(r"(?P<direction>rx|tx)_(?:discards_phy|discards|total_discard_pkts)")


def counter_of(name: str) -> tuple[str, str, str] | None:
    """(`pause` or `discards`, direction, priority) of a driver's counter; None: of no interest.
    A priority is a number, or `all` for plain pause frames."""
    if found := _PRIORITY.fullmatch(name):
        priority = found["a"] or found["b"] or found["c"]
        return ("pause", _direction(found), priority)
    if found := _GLOBAL.fullmatch(name):
        return ("pause", _direction(found), "all")
    if found := _DISCARDS.fullmatch(name):
        return ("discards", _direction(found), "")
    return None


def parse_names(content: bytes | bytearray) -> list[str]:
    """Names out of a string set: each padded to 32 bytes with zeros."""
    pieces = range(0, len(content) - NAME_BYTES + 1, NAME_BYTES)
    return [
        content[at : at + NAME_BYTES].split(b"\0", 1)[0].decode(errors="replace").strip()
        for at in pieces
    ]


def read_driver_counters(interface: str) -> Mapping[tuple[str, str, str], int]:
    """What `counter_of` knows -> value. Raises OSError when the driver has none, or refuses."""
    return of_interest(read_all_counters(interface))


def of_interest(counters: Mapping[str, int]) -> Mapping[tuple[str, str, str], int]:
    """Only what tells of congestion. Where a driver says the same twice, the larger one."""
    kept: dict[tuple[str, str, str], int] = {}
    for name, value in counters.items():
        if known := counter_of(name):
            kept[known] = max(value, kept.get(known, 0))
    return kept


def read_all_counters(interface: str) -> Mapping[str, int]:
    """Every counter that the driver has, by its own names. Raises OSError."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        count = _count(asked, interface)
        if not 0 < count <= MOST_COUNTERS:
            return {}
        room = count + SPARE
        names = _ask(asked, interface, (GET_STRINGS, STATS_SET, count), room * NAME_BYTES)
        values = _ask(asked, interface, (GET_STATS, count), room * 8)
    if told_count(names[8:]) != count or told_count(values[4:]) != count:
        return {}  # they change just now
    names = names[12 : 12 + count * NAME_BYTES]
    return dict(zip(parse_names(names), struct.unpack_from(f"={count}Q", values, 8), strict=False))


def told_count(answer: bytes | bytearray) -> int:
    """The first number of it: as many counters follow."""
    return int(struct.unpack_from("=I", answer)[0])


def _direction(found: re.Match[str]) -> str:
    return "receive" if found["direction"] == "rx" else "transmit"


def _count(asked: socket.socket, interface: str) -> int:
    """How many counters the driver has."""
    request = struct.pack("=IIQI", GET_SET_INFO, 0, 1 << STATS_SET, 0)
    answer = _call(asked, interface, bytearray(request))
    mask, count = struct.unpack_from("=QI", answer, 8)
    return int(count) if mask else 0


def _ask(asked: socket.socket, interface: str, numbers: tuple[int, ...], room: int) -> bytearray:
    return _call(asked, interface, bytearray(struct.pack(f"={len(numbers)}I", *numbers)), room)


def _call(asked: socket.socket, interface: str, request: bytearray, room: int = 0) -> bytearray:
    """The ioctl: `struct ifreq` with a pointer to the request, which the kernel writes into."""
    buffer = array.array("B", bytes(request) + bytes(room))
    address, _ = buffer.buffer_info()
    fcntl.ioctl(asked, SIOCETHTOOL, struct.pack("16sP16x", interface.encode()[:15], address), False)
    return bytearray(buffer.tobytes())


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
