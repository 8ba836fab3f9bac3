"""A connection whose both ends are proven: every frame carries a keyed hash and its number.

Content is authenticated, not encrypted: weights cross the same network in every all-reduce.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import struct
from collections.abc import Mapping
from typing import Any

from holdfast_sidecar.peers.framing import FRAME_S, LIMITS, Kind, Refused, Wire

TAG_SIZE = 32
_NUMBERED = struct.Struct("<QBI")


class Channel:
    """Messages and chunks, in order and from the other side alone. Raises Refused or OSError."""

    def __init__(self, wire: Wire, other: str, send_key: bytes, receive_key: bytes) -> None:
        self._wire = wire
        self._keys = (send_key, receive_key)
        self._sent = 0
        self._received = 0
        self._room = memoryview(bytearray(LIMITS[Kind.MESSAGE]))
        self.other = other

    def send(self, message: Mapping[str, Any]) -> None:
        """Send a message."""
        self._send(Kind.MESSAGE, json.dumps(message).encode())

    def receive(self, within_s: float = FRAME_S) -> dict[str, Any]:
        """The next message, which must come within this time."""
        size = self._receive(Kind.MESSAGE, self._room, within_s)
        try:
            message = json.loads(bytes(self._room[:size]))
        except (ValueError, RecursionError):
            raise Refused("a message that can't be read") from None
        if not isinstance(message, dict):
            raise Refused("a message that is none")
        return message

    def send_chunk(self, chunk: memoryview) -> None:
        """Send bytes, at most CHUNK_SIZE."""
        self._send(Kind.CHUNK, chunk)

    def receive_chunk(self, room: memoryview) -> int:
        """Receive the next bytes into `room`; more than it holds are refused. Answers how many."""
        size = self._receive(Kind.CHUNK, room, FRAME_S)
        if size == 0:
            raise Refused("an empty chunk")  # or a transfer need never end
        return size

    def _send(self, kind: Kind, payload: memoryview | bytes) -> None:
        tag = _tag(self._keys[0], self._sent, kind, payload)
        self._sent += 1
        self._wire.send(kind, payload, tag, FRAME_S)

    def _receive(self, kind: Kind, room: memoryview, within_s: float) -> int:
        size, tag = self._wire.receive(kind, room, TAG_SIZE, within_s)
        expected = _tag(self._keys[1], self._received, kind, room[:size])
        if not hmac.compare_digest(tag, expected):
            raise Refused("a frame that was altered, repeated or left out")
        self._received += 1
        return size


def number(message: Mapping[str, Any], name: str) -> int:
    """A number out of a message; raises Refused when it is none."""
    value = message.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise Refused(f"{name} {value!r} is no number")
    return value


def _tag(key: bytes, number: int, kind: Kind, payload: memoryview | bytes) -> bytes:
    numbered = _NUMBERED.pack(number, kind, len(payload))
    digest = hashlib.blake2b(numbered, key=key, digest_size=TAG_SIZE)
    digest.update(payload)
    return digest.digest()
