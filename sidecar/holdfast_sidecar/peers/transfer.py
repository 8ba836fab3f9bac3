"""One slot over a channel: header, layout and state, data, and what it all added up to.

Both sides cut it by the header, so no length comes off the wire. A slot may take as long as it
takes: every frame has its own time limit, so one that makes no progress ends within 30 s. After a
broken connection the next one goes on at the byte where it broke, if the slot is still the same.
"""

from __future__ import annotations

import hashlib
import math
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
from holdfast_sidecar.peers.slot_copy import Expected, SlotCopy, parse_expected, unsealed
from holdfast_sidecar.snapshots.slot_files import NAMED
from holdfast_sidecar.snapshots.slot_memory import SlotMemory


class GivenUp(Exception):
    """The transfer was called off on this side."""


@dataclass(frozen=True)
class Flow:
    """How fast, what calls it off, what it is written into. Throttle None: as fast as it goes."""

    throttle: Throttle | None
    lifeline: Lifeline
    memory: SlotMemory = NAMED
    until_s: float = math.inf
    """Called off then, by the monotonic clock."""

    def admit(self, size: int) -> None:
        """Wait for these bytes' turn; raises GivenUp."""
        if self.throttle is not None:
            self.throttle.admit(size, self.lifeline)
        if self.lifeline.is_cut or time.monotonic() > self.until_s:
            raise GivenUp


def identity_of(raw_header: bytes) -> str:
    """What both sides call one sealing of a slot."""
    return hashlib.blake2b(unsealed(raw_header), digest_size=16).hexdigest()


class Partial:
    """What came of one slot before its connection broke: the next one brings the rest.

    The file stays open and locked meanwhile, so that nothing gets in between; for one thread.
    """

    def __init__(self) -> None:
        self._place: tuple[Path, Expected] | None = None
        self._copy: SlotCopy | None = None
        self._header = b""
        self._crc = 0
        self.received = 0
        """Bytes of layout, state and data."""

    def close(self) -> None:
        """Forget it: what lies there stays torn."""
        if self._copy is not None:
            self._copy.close()
        self._copy, self._place, self._header = None, None, b""
        self._crc = self.received = 0

    def path_of(self, expected: Expected) -> Path | None:
        """Where this slot has begun to come in; None: it has not."""
        return self._place[0] if self._place is not None and self._place[1] == expected else None

    def known(self, path: Path, expected: Expected) -> dict[str, object]:
        """What to tell the sender of what is here. Anything else that is here is forgotten."""
        if self._place != (path, expected):
            self.close()
        if not self.received:
            return {}
        return {"from": self.received, "identity": identity_of(self._header)}

    def open(
        self, raw_header: bytes, path: Path, expected: Expected, memory: SlotMemory, start: int
    ) -> SlotHeader:
        """Take what comes now, from `start` on. Raises Refused, SlotBusy, OSError."""
        header = parse_expected(raw_header, expected)
        if start == 0:
            self.close()
            self._copy = SlotCopy(path, header, raw_header, memory)
            self._place, self._header = (path, expected), unsealed(raw_header)
        elif start != self.received or unsealed(raw_header) != self._header:
            raise Refused(f"the rest of another slot was sent than that of {expected}")
        return header

    def write(self, offset: int, chunk: memoryview, *, sums: bool) -> None:
        """Put down what came next."""
        assert self._copy is not None
        self._copy.write(offset, chunk)
        self._crc = zlib.crc32(chunk, self._crc) if sums else self._crc
        self.received += len(chunk)

    def seal(self, told_crc: object) -> None:
        """It is whole, if it is what the sender says. Raises Refused, OSError."""
        assert self._copy is not None
        assert self._place is not None
        if told_crc != self._crc:
            _, expected = self._place
            raise Refused(f"step {expected.step} of rank {expected.rank} came in with other bytes")
        self._copy.seal(self._crc)


def send_slot(channel: Channel, slot: HeldSlot, start: int = 0) -> int:
    """Send a slot that is held, without the first `start` bytes after its header; answers the bytes
    sent. Raises OSError or Refused."""
    channel.send_chunk(memoryview(slot.raw_header))
    plain, data = zones(slot.header)
    room = memoryview(bytearray(CHUNK_SIZE))
    _send_zone(channel, slot, plain, room, start, sums=False)
    known, skipped = slot.header.data_crc, max(0, start - plain[1])
    crc = _send_zone(channel, slot, data, room, skipped, sums=known is None)
    channel.send({"sealed": slot.is_still_sealed(), "crc": crc if known is None else known})
    return HEADER_SIZE + plain[1] + data[1] - start


def receive_slot(
    channel: Channel, path: Path, expected: Expected, flow: Flow, partial: Partial, start: int = 0
) -> int:
    """Write what is sent to `path`, sealed once it is whole; answers the bytes received.

    Raises OSError, Refused, GivenUp or SlotBusy; what lies there then is torn, and after the first
    and third of them `partial` has what came.
    """
    room = memoryview(bytearray(CHUNK_SIZE))
    flow.admit(HEADER_SIZE)
    size = channel.receive_chunk(room[:HEADER_SIZE])
    try:
        header = partial.open(bytes(room[:size]), path, expected, flow.memory, start)
        plain, data = zones(header)
        _receive_zone(channel, partial, _Stretch(*plain, before=0, sums=False), flow, room)
        _receive_zone(channel, partial, _Stretch(*data, before=plain[1], sums=True), flow, room)
        end = channel.receive()
        if end.get("sealed") is not True:
            raise Refused(f"step {header.step} of rank {header.rank} changed while it was sent")
        partial.seal(end.get("crc"))
    except Refused:
        partial.close()
        raise
    partial.close()
    return HEADER_SIZE + plain[1] + data[1] - start


def _send_zone(
    channel: Channel,
    slot: HeldSlot,
    zone: tuple[int, int],
    room: memoryview,
    skipped: int,
    *,
    sums: bool,
) -> int:
    """Send a zone but for its first bytes; answers the checksum of all of it where that is wanted
    (another core's work, if not)."""
    (offset, left), crc = zone, 0
    unsent = min(skipped, left)
    if not sums:
        offset, left, unsent = offset + unsent, left - unsent, 0
    while left:
        ahead = min(left, CHUNK_SIZE, unsent or left)
        count = slot.read(offset, room[:ahead])
        if count == 0:
            raise Refused("the slot's file was cut short")
        crc = zlib.crc32(room[:count], crc) if sums else 0
        if unsent:
            unsent -= count
        else:
            channel.send_chunk(room[:count])
        offset, left = offset + count, left - count
    return crc


@dataclass(frozen=True)
class _Stretch:
    """A zone, and how many bytes come before it."""

    offset: int
    size: int
    before: int
    sums: bool
    """Whether it counts towards the checksum."""


def _receive_zone(
    channel: Channel, partial: Partial, zone: _Stretch, flow: Flow, room: memoryview
) -> None:
    """Bring what is missing of it."""
    while (got := partial.received - zone.before) < zone.size:
        ahead = min(zone.size - got, CHUNK_SIZE)
        flow.admit(ahead)
        count = channel.receive_chunk(room[:ahead])
        partial.write(zone.offset + got, room[:count], sums=zone.sums)
