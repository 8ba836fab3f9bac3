"""One slot over a channel: header, layout and state, data, and what it all added up to.

Both sides cut it by the header, so no length comes off the wire. A slot may take as long as it
takes: every frame has its own time limit, so one that makes no progress ends within 30 s. After a
broken connection the next one goes on at the byte where it broke, if the slot is still the same.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import socket
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast.contract.page import Order, OrderKind, Word, parse_words
from holdfast.contract.snapshot_file import COPIES_DIRECTORY, HEADER_SIZE, OWN_DIRECTORY, SlotHeader
from holdfast_sidecar.checkpoint.replication.slots import (
    Expected,
    HeldSlot,
    ReplicaSlot,
    SealWatch,
    SlotCopy,
    holding,
    parse_expected,
    sealed_slots,
    unsealed,
    zones,
)
from holdfast_sidecar.checkpoint.replication.wire import (
    CHUNK_SIZE,
    FRAME_S,
    CancelToken,
    Channel,
    PeerCredentials,
    ProtocolError,
    Throttle,
    Wire,
    call,
    number,
)
from holdfast_sidecar.checkpoint.snapshot.files import NAMED
from holdfast_sidecar.checkpoint.snapshot.memory import SlotMemory
from holdfast_sidecar.ranks.page import RankPage, open_page


class GivenUp(Exception):
    """The transfer was called off on this side."""


@dataclass(frozen=True)
class Flow:
    """How fast, what calls it off, what it is written into. Throttle None: as fast as it goes."""

    throttle: Throttle | None
    lifeline: CancelToken
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
            raise ProtocolError(f"the rest of another slot was sent than that of {expected}")
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
            raise ProtocolError(
                f"step {expected.step} of rank {expected.rank} came in with other bytes"
            )
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
            raise ProtocolError(
                f"step {header.step} of rank {header.rank} changed while it was sent"
            )
        partial.seal(end.get("crc"))
    except ProtocolError:
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
            raise ProtocolError("the slot's file was cut short")
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


# The calling side's words to another node's sidecar: what it has, send it, it is safe here.

CONNECT_S = 5.0

LONGEST_WAIT_S = 5.0
"""The server answers "nothing yet" at least this often, so that a cut link is noticed."""


@dataclass(frozen=True)
class Sealed:
    """A sealed slot that another node told of.

    `room`: the directory that it lies in there. `existing`: newest step its rank knows all have;
    what else that rank had up to `settled` exists nowhere.
    """

    attempt: int
    step: int
    room: str = OWN_DIRECTORY
    existing: int = -1
    settled: int = -1


@dataclass(frozen=True)
class Partner:
    """Another node, and where its sidecar listens for this one's."""

    node: str
    address: str


@dataclass(frozen=True)
class SlotServer:
    """An open channel to a node that has slots."""

    channel: Channel

    def newer(self, rank: int, attempt: int, than: int) -> Sealed | None:
        """The newest sealed step of this rank beyond `than`, waited for; None: nothing yet."""
        answer = self._ask(
            {"ask": "newer", "rank": rank, "attempt": attempt, "than": than},
            LONGEST_WAIT_S + FRAME_S,
        )
        step = number(answer, "step")
        existing, settled = number(answer, "existing"), number(answer, "settled")
        return None if step < 0 else Sealed(attempt, step, existing=existing, settled=settled)

    def has(self, rank: int) -> list[Sealed]:
        """What the node has of this rank: copies, and slots where the rank ran there."""
        answer = self._ask({"ask": "has", "rank": rank}, FRAME_S)
        steps = answer.get("steps")
        if not isinstance(steps, list) or not all(isinstance(one, dict) for one in steps):
            raise ProtocolError("a list of steps that is none")
        return [
            Sealed(number(one, "attempt"), number(one, "step"), str(one.get("room")))
            for one in steps
        ]

    def pull(
        self, room: str, path: Path, expected: Expected, flow: Flow, partial: Partial
    ) -> int | None:
        """Have a slot of that room sent to `path`, but for what is in `partial`; bytes received, or
        None when the node hasn't sealed it (within a short wait)."""
        request = {
            "ask": "slot",
            "room": room,
            "rank": expected.rank,
            "attempt": expected.attempt,
            "step": expected.step,
            **partial.known(path, expected),
        }
        answer = self._ask(request, LONGEST_WAIT_S + FRAME_S)
        if answer.get("found") is not True:
            return None
        # A sidecar that can't go on, or has another slot by now, sends all of it.
        start = number(answer, "from") if "from" in answer else 0
        return receive_slot(self.channel, path, expected, flow, partial, start)

    def confirm(self, rank: int, attempt: int, step: int) -> None:
        """Say that this step is whole and safe here."""
        self._ask({"ask": "confirm", "rank": rank, "attempt": attempt, "step": step}, FRAME_S)

    def _ask(self, request: dict[str, object], within_s: float) -> dict[str, object]:
        self.channel.send(request)
        return self.channel.receive(within_s)


@contextlib.contextmanager
def connected(
    partner: Partner, own: PeerCredentials, lifeline: CancelToken
) -> Iterator[SlotServer]:
    """Connect to a node and prove each other. Raises OSError or Refused."""
    address, node = partner.address, partner.node
    host, _, port = address.rpartition(":")
    if not port.isdecimal():
        raise ProtocolError(f"{address!r} is no address")
    target = (host.strip("[]"), int(port))
    connection = socket.create_connection(target, timeout=CONNECT_S)
    with connection, lifeline.holding(connection):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield SlotServer(call(Wire(connection), own, node))


# What a sidecar's server reads from and writes into the pages of its ranks: which snapshot a rank
# knows to exist, and that (or that not) a step is on another node.

NO_MORE = 2**62
"""A step beyond all others: nothing is confirmed until further notice."""


@dataclass(frozen=True)
class Existing:
    """What a rank knows; -1: nothing.

    newest: the newest step that all ranks sealed. settled: of this rank's steps up to it, none but
    that one exists, nor ever will.
    """

    newest: int = -1
    settled: int = -1


@dataclass
class RankWords:
    """The pages of one attempt's ranks; opened when first needed, used from any thread."""

    directory: Path
    attempt: int
    _pages: dict[int, RankPage] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def existing(self, rank: int) -> Existing:
        """What this rank knows of the snapshots there are."""
        with self._lock:
            page = self._find(rank)
            if page is None:
                return Existing()
            words = parse_words(page.read())
            return Existing(words[Word.SNAPSHOT_EXISTING] - 1, words[Word.SNAPSHOT_SETTLED] - 1)

    def tell(self, rank: int, step: int, *, is_safe: bool) -> bool:
        """Write CONFIRMED for this rank, unless a later word stands there; whether it was written.

        `is_safe` False: what up to `step` is not confirmed won't be, so nobody need wait for it.
        """
        with self._lock:
            page = self._find(rank)
            if page is None:
                return False
            present = page.read_order(OrderKind.CONFIRMED)
            if present is not None and not _follows(present, step, is_safe):
                return False
            order = Order(
                kind=OrderKind.CONFIRMED,
                attempt=self.attempt,
                epoch=page.identity.epoch,
                step=step,
                deadline_ns=int(is_safe),  # it stands; 0 would withdraw it
                identifier=f"step-{step}",
            )
            page.write_order(order)
            return True

    def close(self) -> None:
        """Let go of the pages."""
        with self._lock:
            self._close_all()

    def _find(self, rank: int) -> RankPage | None:
        page = self._pages.get(rank)
        if page is None or not _is_in_place(page):
            self._close_all()
            self._open_all()
        return self._pages.get(rank)

    def _open_all(self) -> None:
        for path in self.directory.glob(f"attempt-{self.attempt}-local-*.page"):
            page = open_page(path)
            if page is None:
                continue
            if page.identity.rank in self._pages:
                page.close()
            else:
                self._pages[page.identity.rank] = page

    def _close_all(self) -> None:
        for page in self._pages.values():
            page.close()
        self._pages.clear()


def _is_in_place(page: RankPage) -> bool:
    """Whether no other process has claimed its place since."""
    try:
        return page.path.stat().st_ino == page.inode
    except FileNotFoundError:
        return False


def _follows(present: Order, step: int, is_safe: bool) -> bool:
    """Whether this word says more than the one that stands: a later step, or the end of waiting,
    or that waiting is worth while again."""
    if present.is_withdrawn and present.step >= NO_MORE:
        return is_safe
    return step > present.step


# The serving side of one channel: answers what another node's sidecar asks, until it hangs up.

IDLE_S = 60.0
"""A caller that asks nothing for so long is gone; one that has work asks again at once."""

MOST_TOLD = 16
"""Sealed steps of one rank in an answer: a rank has a handful of slots, and a frame its limit."""

ROOMS = (OWN_DIRECTORY, COPIES_DIRECTORY)


@dataclass(frozen=True)
class Shelves:
    """What there is to serve, and who is to be told what became of it."""

    shm: Path
    watch: SealWatch
    existing: Callable[[int, int], Existing]
    """(attempt, rank) -> what the rank knows of the snapshots there are."""
    confirmed: Callable[[int, int, int], None]
    """(attempt, rank, step): another node has it, whole."""
    served: Callable[[int], None]
    """So many bytes were sent."""


@dataclass(frozen=True)
class Conversation:
    """One caller. Ends by ConnectionResetError when it hangs up; raises Refused, TimeoutError."""

    channel: Channel
    shelves: Shelves
    is_over: Callable[[], bool]

    def hold(self) -> None:
        """Answer until the attempt is over or the caller is gone."""
        answers = {
            "newer": self._newer,
            "slot": self._slot,
            "has": self._has,
            "confirm": self._confirm,
        }
        while not self.is_over():
            request = self.channel.receive(IDLE_S)
            answer = answers.get(str(request.get("ask")))
            if answer is None:
                raise ProtocolError(f"it asks for {request.get('ask')!r}")
            answer(request)

    def _newer(self, request: Mapping[str, Any]) -> None:
        rank, attempt, than = (number(request, name) for name in ("rank", "attempt", "than"))

        def look() -> ReplicaSlot | None:
            found = self._sealed(OWN_DIRECTORY, rank, attempt)
            return found[0] if found and found[0].header.step > than else None

        newest = self._await(look)
        if newest is None:
            self.channel.send({"step": -1, "existing": -1, "settled": -1})
            return
        existing = self.shelves.existing(attempt, rank)
        self.channel.send(
            {
                "step": newest.header.step,
                "existing": existing.newest,
                "settled": existing.settled,
            }
        )

    def _slot(self, request: Mapping[str, Any]) -> None:
        room = request.get("room")
        if room not in ROOMS:
            raise ProtocolError(f"there is no room {room!r}")
        rank, attempt, step = (number(request, name) for name in ("rank", "attempt", "step"))

        def look() -> ReplicaSlot | None:
            slots = self._sealed(room, rank, attempt)
            return next((slot for slot in slots if slot.header.step == step), None)

        found = self._await(look)
        if found is None:
            self.channel.send({"found": False})
            return
        with holding(found.path, attempt, step) as held:
            start = 0 if held is None else _known_part(request, held)
            self.channel.send({"found": held is not None, "from": start})
            if held is not None:
                self.shelves.served(send_slot(self.channel, held, start))

    def _has(self, request: Mapping[str, Any]) -> None:
        rank = number(request, "rank")
        steps = [
            {"room": room, "attempt": slot.header.attempt, "step": slot.header.step}
            for room in ROOMS
            for slot in sealed_slots(self.shelves.shm / room, rank)
        ]
        self.channel.send({"steps": steps[:MOST_TOLD]})

    def _confirm(self, request: Mapping[str, Any]) -> None:
        rank, attempt, step = (number(request, name) for name in ("rank", "attempt", "step"))
        self.shelves.confirmed(attempt, rank, step)
        self.channel.send({})

    def _sealed(self, room: str, rank: int, attempt: int) -> list[ReplicaSlot]:
        slots = sealed_slots(self.shelves.shm / room, rank)
        return [slot for slot in slots if slot.header.attempt == attempt]

    def _await(self, look: Callable[[], ReplicaSlot | None]) -> ReplicaSlot | None:
        """What `look` finds within a while; None: nothing, and the caller asks again."""
        deadline = time.monotonic() + LONGEST_WAIT_S
        while True:
            seen = self.shelves.watch.count
            found = look()
            if found is not None or self.is_over() or time.monotonic() > deadline:
                return found
            self.shelves.watch.wait(seen)


def _known_part(request: Mapping[str, Any], held: HeldSlot) -> int:
    """How much of this very slot the caller says it has."""
    if "from" not in request or request.get("identity") != identity_of(held.raw_header):
        return 0
    known, whole = number(request, "from"), sum(size for _, size in zones(held.header))
    if not 0 <= known <= whole:
        raise ProtocolError(f"it has {known} bytes of a slot of {whole}")
    return known
