"""Frames on a socket: kind, size, payload, tag; limits and deadlines, so that nobody is waited for
without end and nothing is read that was not announced. Who sent it is for `channel`.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum


class Refused(Exception):
    """The other side does not keep to the protocol, or is not who it must be."""


class Kind(IntEnum):
    """What a frame carries."""

    HELLO = 1  # JSON, before either side has proved anything
    MESSAGE = 2  # JSON
    CHUNK = 3  # bytes of a slot


CHUNK_SIZE = 1 << 20
"""Large enough that a tag costs nothing beside its hash, small enough to share a slow link."""

LIMITS = {Kind.HELLO: 1024, Kind.MESSAGE: 4096, Kind.CHUNK: CHUNK_SIZE}
"""Most bytes that a frame may announce; a stranger can make us hold no more than a kilobyte."""

HEADER = struct.Struct("<BI")

FRAME_S = 30.0
"""For one frame, once it has begun or is owed: even a megabyte on a link of a few Mbit/s."""


@dataclass
class Wire:
    """One connected socket. Every call raises OSError (TimeoutError included) or Refused."""

    socket: socket.socket
    clock: Callable[[], float] = time.monotonic

    def send(self, kind: Kind, payload: memoryview | bytes, tag: bytes, within_s: float) -> None:
        """Send one frame."""
        self.socket.settimeout(within_s)  # for sendall this is the limit of the whole
        self.socket.sendall(HEADER.pack(kind, len(payload)) + tag)
        self.socket.sendall(payload)

    def receive(
        self, kind: Kind, room: memoryview, tag_size: int, within_s: float
    ) -> tuple[int, bytes]:
        """Receive one frame of this kind into `room`; answers its size and tag."""
        deadline = self.clock() + within_s
        head = bytearray(HEADER.size + tag_size)
        self._fill(memoryview(head), deadline)
        announced, size = HEADER.unpack_from(head)
        if announced != kind or size > min(LIMITS[kind], len(room)):
            raise Refused(f"a frame of kind {announced} and {size} bytes where none may be")
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
