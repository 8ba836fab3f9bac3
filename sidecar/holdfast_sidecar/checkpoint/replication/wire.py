"""Frames on a socket: kind, size, payload, tag; limits and deadlines, so that nobody is waited for
without end and nothing is read that was not announced. Who sent it is for `channel`.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import secrets
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any


class ProtocolError(Exception):
    """The other side does not keep to the protocol, or is not who it must be."""


class FrameKind(IntEnum):
    """What a frame carries."""

    HELLO = 1  # JSON, before either side has proved anything
    MESSAGE = 2  # JSON
    CHUNK = 3  # bytes of a slot


CHUNK_SIZE = 1 << 20
"""Large enough that a tag costs nothing beside its hash, small enough to share a slow link."""

LIMITS = {FrameKind.HELLO: 1024, FrameKind.MESSAGE: 4096, FrameKind.CHUNK: CHUNK_SIZE}
"""Most bytes that a frame may announce; a stranger can make us hold no more than a kilobyte."""

HEADER = struct.Struct("<BI")

FRAME_S = 30.0
"""For one frame, once it has begun or is owed: even a megabyte on a link of a few Mbit/s."""


@dataclass
class Wire:
    """One connected socket. Every call raises OSError (TimeoutError included) or Refused."""

    socket: socket.socket
    clock: Callable[[], float] = time.monotonic

    def send(
        self, kind: FrameKind, payload: memoryview | bytes, tag: bytes, within_s: float
    ) -> None:
        """Send one frame."""
        self.socket.settimeout(within_s)  # for sendall this is the limit of the whole
        self.socket.sendall(HEADER.pack(kind, len(payload)) + tag)
        self.socket.sendall(payload)

    def receive(
        self, kind: FrameKind, room: memoryview, tag_size: int, within_s: float
    ) -> tuple[int, bytes]:
        """Receive one frame of this kind into `room`; answers its size and tag."""
        deadline = self.clock() + within_s
        head = bytearray(HEADER.size + tag_size)
        self._fill(memoryview(head), deadline)
        announced, size = HEADER.unpack_from(head)
        if announced != kind or size > min(LIMITS[kind], len(room)):
            raise ProtocolError(f"a frame of kind {announced} and {size} bytes where none may be")
        self._fill(room[:size], deadline)
        return size, bytes(head[HEADER.size :])

    def _fill(self, room: memoryview, deadline: float) -> None:
        """Exactly as many bytes; the deadline is for all, so that drops don't prolong it."""
        got = 0
        while got < len(room):
            left = deadline - self.clock()
            if left <= 0:
                raise TimeoutError("the other side is too slow")
            self.socket.settimeout(left)
            count = self.socket.recv_into(room[got:])
            if count == 0:
                raise ConnectionResetError("the other side hung up")
            got += count


# A connection whose both ends are proven: every frame carries a keyed hash and its number.
#
# Content is authenticated, not encrypted: weights cross the same network in every all-reduce.

TAG_SIZE = 32
_NUMBERED = struct.Struct("<QBI")


class Channel:
    """Messages and chunks, in order and from the other side alone. Raises Refused or OSError."""

    def __init__(self, wire: Wire, other: str, send_key: bytes, receive_key: bytes) -> None:
        self._wire = wire
        self._keys = (send_key, receive_key)
        self._sent = 0
        self._received = 0
        self._room = memoryview(bytearray(LIMITS[FrameKind.MESSAGE]))
        self.other = other

    def send(self, message: Mapping[str, Any]) -> None:
        """Send a message."""
        self._send(FrameKind.MESSAGE, json.dumps(message).encode())

    def receive(self, within_s: float = FRAME_S) -> dict[str, Any]:
        """The next message, which must come within this time."""
        size = self._receive(FrameKind.MESSAGE, self._room, within_s)
        try:
            message = json.loads(bytes(self._room[:size]))
        except (ValueError, RecursionError):
            raise ProtocolError("a message that can't be read") from None
        if not isinstance(message, dict):
            raise ProtocolError("a message that is none")
        return message

    def send_chunk(self, chunk: memoryview) -> None:
        """Send bytes, at most CHUNK_SIZE."""
        self._send(FrameKind.CHUNK, chunk)

    def receive_chunk(self, room: memoryview) -> int:
        """Receive the next bytes into `room`; more than it holds are refused. Answers how many."""
        size = self._receive(FrameKind.CHUNK, room, FRAME_S)
        if size == 0:
            raise ProtocolError("an empty chunk")  # or a transfer need never end
        return size

    def _send(self, kind: FrameKind, payload: memoryview | bytes) -> None:
        tag = _tag(self._keys[0], self._sent, kind, payload)
        self._sent += 1
        self._wire.send(kind, payload, tag, FRAME_S)

    def _receive(self, kind: FrameKind, room: memoryview, within_s: float) -> int:
        size, tag = self._wire.receive(kind, room, TAG_SIZE, within_s)
        expected = _tag(self._keys[1], self._received, kind, room[:size])
        if not hmac.compare_digest(tag, expected):
            raise ProtocolError("a frame that was altered, repeated or left out")
        self._received += 1
        return size


def number(message: Mapping[str, Any], name: str) -> int:
    """A number out of a message; raises Refused when it is none."""
    value = message.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise ProtocolError(f"{name} {value!r} is no number")
    return value


def _tag(key: bytes, number: int, kind: FrameKind, payload: memoryview | bytes) -> bytes:
    numbered = _NUMBERED.pack(number, kind, len(payload))
    digest = hashlib.blake2b(numbered, key=key, digest_size=TAG_SIZE)
    digest.update(payload)
    return digest.digest()


# Two sidecars prove to each other that they know the attempt's key, without showing it.
#
# Each sends a fresh nonce and its name; each proves itself by an HMAC over both. The serving side
# proves first: a stranger who dials in learns nothing that helps, the key having 256 bits.

PROTOCOL = 1

HANDSHAKE_S = 5.0
"""For each of its frames: a round trip and two hashes, on a machine that is busy."""

_SERVER = b"holdfast peer server"
_CLIENT = b"holdfast peer client"


@dataclass(frozen=True)
class PeerCredentials:
    """Who this is, in which attempt of which job, and what proves it."""

    job: str
    attempt: int
    name: str
    secret: bytes

    def __repr__(self) -> str:
        """Without the secret: this may end up in a log."""
        return f"Credentials({self.job!r}, {self.attempt}, {self.name!r})"


def call(wire: Wire, own: PeerCredentials, expected: str, within_s: float = HANDSHAKE_S) -> Channel:
    """The calling side; `expected` is the node that must answer. Raises Refused or OSError."""
    mine = _hello(own)
    _send(wire, mine, within_s)
    theirs = _receive(wire, within_s)
    if theirs.get("name") != expected:
        raise ProtocolError(f"{theirs.get('name')!r} answers where {expected!r} should")
    transcript = _transcript(mine, theirs)
    _check(theirs, _proof(own.secret, _SERVER, transcript))
    _send(wire, {"proof": _proof(own.secret, _CLIENT, transcript).hex()}, within_s)
    return _channel(wire, own.secret, transcript, is_server=False, other=expected)


def answer(wire: Wire, own: PeerCredentials, within_s: float = HANDSHAKE_S) -> Channel:
    """The serving side. Raises Refused or OSError."""
    theirs = _receive(wire, within_s)
    for name, value in (("protocol", PROTOCOL), ("job", own.job), ("attempt", own.attempt)):
        if theirs.get(name) != value:
            raise ProtocolError(f"{name} {theirs.get(name)!r} where it is {value!r}")
    mine = _hello(own)
    transcript = _transcript(theirs, mine)
    proof = _proof(own.secret, _SERVER, transcript).hex()
    _send(wire, {**mine, "proof": proof}, within_s)
    _check(_receive(wire, within_s), _proof(own.secret, _CLIENT, transcript))
    return _channel(wire, own.secret, transcript, is_server=True, other=str(theirs.get("name")))


def _hello(own: PeerCredentials) -> dict[str, Any]:
    return {
        "protocol": PROTOCOL,
        "job": own.job,
        "attempt": own.attempt,
        "name": own.name,
        "nonce": secrets.token_hex(32),
    }


def _transcript(client: dict[str, Any], server: dict[str, Any]) -> bytes:
    """What both have seen; the serving side's proof is about it, so not part of it."""
    said = [client, {name: value for name, value in server.items() if name != "proof"}]
    return json.dumps(said, sort_keys=True, separators=(",", ":")).encode()


def _proof(secret: bytes, role: bytes, transcript: bytes) -> bytes:
    """Roles have proofs of their own, so that none can be sent back to who made it."""
    return hmac.digest(secret, role + b"\0" + transcript, "sha256")


def _check(message: dict[str, Any], proof: bytes) -> None:
    if not hmac.compare_digest(str(message.get("proof", "")).encode(), proof.hex().encode()):
        raise ProtocolError("it does not know this attempt's key")


def _channel(
    wire: Wire, secret: bytes, transcript: bytes, *, is_server: bool, other: str
) -> Channel:
    """Each direction has a key of its own, made from both nonces: no recording fits again."""
    from_server = hmac.digest(secret, b"from server\0" + transcript, "sha256")
    from_client = hmac.digest(secret, b"from client\0" + transcript, "sha256")
    keys = (from_server, from_client) if is_server else (from_client, from_server)
    return Channel(wire, other, *keys)


def _send(wire: Wire, message: dict[str, Any], within_s: float) -> None:
    wire.send(FrameKind.HELLO, json.dumps(message).encode(), b"", within_s)


def _receive(wire: Wire, within_s: float) -> dict[str, Any]:
    room = bytearray(LIMITS[FrameKind.HELLO])
    size, _ = wire.receive(FrameKind.HELLO, memoryview(room), 0, within_s)
    try:
        message = json.loads(room[:size])
    except (ValueError, RecursionError):
        raise ProtocolError("a greeting that can't be read") from None
    if not isinstance(message, dict):
        raise ProtocolError("a greeting that is none")
    return message


# What a transfer hangs on: once cut, it ends at once, wherever it waits.


class CancelToken:
    """Cut from any thread, once and for all."""

    def __init__(self) -> None:
        self._cut = threading.Event()
        self._sockets: set[socket.socket] = set()
        self._lock = threading.Lock()

    @property
    def is_cut(self) -> bool:
        """Whether it is over."""
        return self._cut.is_set()

    def wait(self, seconds: float) -> None:
        """Sleep, but not beyond the cut."""
        self._cut.wait(seconds)

    @contextlib.contextmanager
    def holding(self, connection: socket.socket) -> Iterator[None]:
        """Hang a connection on it: reading and writing there fail when it is cut."""
        with self._lock:
            self._sockets.add(connection)
            if self.is_cut:
                _shut(connection)
        try:
            yield
        finally:
            with self._lock:
                self._sockets.discard(connection)

    def cut(self) -> None:
        """End everything that hangs on it."""
        self._cut.set()
        with self._lock:
            for connection in self._sockets:
                _shut(connection)


def _shut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


# The cap on what this node fetches: a bucket of bytes that fills at a steady rate.

BURST_S = 0.1
"""How much of the rate may pass at once: short for a link's queues, long for a thread's turn."""


@dataclass
class Bucket:
    """Pure: told how many bytes and when, answers how long to wait. Rate 0: no cap."""

    bytes_per_s: float
    _level: float = 0.0
    _at_s: float = float("-inf")

    def take(self, size: int, now_s: float) -> float:
        """Seconds to wait, after these bytes, before the next may pass."""
        if self.bytes_per_s <= 0:
            return 0.0
        most = self.bytes_per_s * BURST_S
        refill = (now_s - self._at_s) * self.bytes_per_s
        self._level = min(most, self._level + max(0.0, refill)) - size
        self._at_s = max(now_s, self._at_s)
        return max(0.0, -self._level / self.bytes_per_s)


@dataclass
class Throttle:
    """One bucket for all of this node's transfers."""

    bucket: Bucket
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def admit(self, size: int, lifeline: CancelToken) -> None:
        """Wait until so many bytes may pass, or the lifeline is cut."""
        with self._lock:
            wait_s = self.bucket.take(size, time.monotonic())
        if wait_s > 0:
            lifeline.wait(wait_s)
