"""One slot over a channel: header, layout and state, data, and what it all added up to.

Both sides cut it by the header, so no length comes off the wire.
"""

from __future__ import annotations

import time
import zlib
from dataclasses import dataclass
from pathlib import Path

from holdfast.snapshot_file import HEADER_SIZE, SlotHeader
from holdfast_sidecar.peers.bandwidth import Throttle
from holdfast_sidecar.peers.channel import Channel
from holdfast_sidecar.peers.framing import CHUNK_SIZE, Refused
from holdfast_sidecar.peers.lifeline import Lifeline
from holdfast_sidecar.peers.sealed_slots import HeldSlot, zones
from holdfast_sidecar.peers.slot_copy import Expected, SlotCopy, parse_expected


class GivenUp(Exception):
    """The transfer was called off on this side."""


@dataclass(frozen=True)
class Flow:
    """How fast, and until when."""

    throttle: Throttle
    lifeline: Lifeline
    end_s: float
    """On the monotonic clock."""

    def admit(self, size: int) -> None:
        """Wait for these bytes' turn; raises GivenUp, or TimeoutError when the time is over."""
        self.throttle.admit(size, self.lifeline)
        if self.lifeline.is_cut:
            raise GivenUp
        if time.monotonic() > self.end_s:
            raise TimeoutError("the copy took too long")


def send_slot(channel: Channel, slot: HeldSlot) -> int:
    """Send a slot that is held; answers the bytes sent. Raises OSError or Refused."""
    channel.send_chunk(memoryview(slot.raw_header))
    plain, data = zones(slot.header)
    room = memoryview(bytearray(CHUNK_SIZE))
    _send_zone(channel, slot, plain, room, sums=False)
    known = slot.header.data_crc
    crc = _send_zone(channel, slot, data, room, sums=known is None)
    channel.send({"sealed": slot.is_still_sealed(), "crc": crc if known is None else known})
    return HEADER_SIZE + plain[1] + data[1]


def receive_slot(channel: Channel, path: Path, expected: Expected, flow: Flow) -> int:
    """Write what is sent to `path`, sealed once it is whole; answers the bytes received.

    Raises OSError, Refused, GivenUp or SlotBusy; what lies there then is torn.
    """
    room = memoryview(bytearray(CHUNK_SIZE))
    flow.admit(HEADER_SIZE)
    size = channel.receive_chunk(room[:HEADER_SIZE])
    raw = bytes(room[:size])
    header = parse_expected(raw, expected)
    copy = SlotCopy(path, header, raw)
    try:
        plain, data = zones(header)
        _receive_zone(channel, copy, plain, flow, room)
        crc = _receive_zone(channel, copy, data, flow, room)
        _check_end(channel, header, crc)
        copy.seal(crc)
    finally:
        copy.close()
    return HEADER_SIZE + plain[1] + data[1]


def _send_zone(
    channel: Channel, slot: HeldSlot, zone: tuple[int, int], room: memoryview, *, sums: bool
) -> int:
    """Send a zone; answers its checksum where that is wanted (another core's work, if not)."""
    (offset, left), crc = zone, 0
    while left:
        count = slot.read(offset, room[: min(left, CHUNK_SIZE)])
        if count == 0:
            raise Refused("the slot's file was cut short")
        crc = zlib.crc32(room[:count], crc) if sums else 0
        channel.send_chunk(room[:count])
        offset, left = offset + count, left - count
    return crc


def _receive_zone(
    channel: Channel, copy: SlotCopy, zone: tuple[int, int], flow: Flow, room: memoryview
) -> int:
    (offset, left), crc = zone, 0
    while left:
        ahead = min(left, CHUNK_SIZE)
        flow.admit(ahead)
        count = channel.receive_chunk(room[:ahead])
        crc = zlib.crc32(room[:count], crc)
        copy.write(offset, room[:count])
        offset, left = offset + count, left - count
    return crc


def _check_end(channel: Channel, header: SlotHeader, crc: int) -> None:
    end = channel.receive()
    if end.get("sealed") is not True:
        raise Refused(f"step {header.step} of rank {header.rank} changed while it was sent")
    if end.get("crc") != crc:
        raise Refused(f"step {header.step} of rank {header.rank} came in with other bytes")
