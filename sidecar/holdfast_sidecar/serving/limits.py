"""What one caller may take of this process: time, bytes, one of a few threads."""

from __future__ import annotations

import io
import socket
import time

PATIENCE_S = 5.0
"""For a handshake, for the whole request, and for taking the answer: half of Prometheus' own
scrape timeout (10 s). A caller that is slower is in no state to scrape."""

MOST_BYTES = 16 * 1024
"""Of a request with all its headers; Prometheus sends half a kilobyte, and nobody sends a body."""

MOST_CALLERS = 16
"""At a time: a few Prometheus servers, a few people's pages. More are sent away at once, so that
nobody who connects again and again takes threads or memory from the node."""


class LimitedReader(io.RawIOBase):
    """Reads a request: so many bytes and so long in all, however they come."""

    def __init__(
        self, connection: socket.socket, most: int = MOST_BYTES, patience_s: float = PATIENCE_S
    ) -> None:
        self._connection = connection
        self._left = most
        self._until_s = time.monotonic() + patience_s

    @property
    def is_exhausted(self) -> bool:
        """Whether there was more than anybody has to ask."""
        return self._left == 0

    def readable(self) -> bool:
        """Yes."""
        return True

    def readinto(self, buffer: object) -> int:
        """Raises TimeoutError when the time is over."""
        left_s = self._until_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("the request took too long")
        self._connection.settimeout(left_s)
        room = memoryview(buffer)[: self._left]  # type: ignore[arg-type]
        count = self._connection.recv_into(room) if len(room) else 0
        self._left -= count
        return count
