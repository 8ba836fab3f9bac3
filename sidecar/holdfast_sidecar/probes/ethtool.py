"""A driver's own counters of an interface (`ethtool -S`), by ioctl: pause frames and discards.

Only what tells of congestion is kept; a driver has up to thousands of them.
"""

from __future__ import annotations

import array
import fcntl
import re
import socket
import struct
from collections.abc import Mapping

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
