"""What one caller may take of this process: time, bytes, one of a few threads."""

from __future__ import annotations

import contextlib
import io
import socket
import threading
import time
from typing import Any

PATIENCE_S = 5.0
"""For a handshake, for the whole request, and for taking the answer: half of Prometheus' own
scrape timeout (10 s). A caller that is slower is in no state to scrape."""

MOST_BYTES = 16 * 1024
"""Of a request with all its headers; Prometheus sends half a kilobyte, and nobody sends a body."""

MOST_CALLERS = 16
"""At a time: a few Prometheus servers, a few people's pages. For one more, whoever has not said for
longest what it wants is sent away, so that nobody who connects and says nothing keeps others out;
where all have asked, it is that one more."""

ROOM_S = 0.2
"""So long the thread of one that was sent away may take to end: it only has to wake."""

PIECE = 2**14
"""Of an answer, written at a time: as much as TLS puts into a record."""


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


class LimitedWriter(io.RawIOBase):
    """Writes an answer: so long in all from its first byte on, however slowly it is taken."""

    def __init__(self, connection: socket.socket, patience_s: float = PATIENCE_S) -> None:
        self._connection = connection
        self._patience_s = patience_s
        self._until_s: float | None = None

    def writable(self) -> bool:
        """Yes."""
        return True

    def write(self, content: Any) -> int:
        """All of it. Raises TimeoutError when the time is over."""
        if self._until_s is None:
            self._until_s = time.monotonic() + self._patience_s
        view = memoryview(content)
        for start in range(0, len(view), PIECE):
            left_s = self._until_s - time.monotonic()
            if left_s <= 0:
                raise TimeoutError("the answer was taken too slowly")
            self._connection.settimeout(left_s)
            self._connection.sendall(view[start : start + PIECE])
        return len(view)


class Silent:
    """Callers that have not said yet what they want, in the order in which they came."""

    def __init__(self) -> None:
        self._connections: dict[int, socket.socket] = {}
        self._lock = threading.Lock()

    def add(self, connection: socket.socket) -> None:
        """One more."""
        with self._lock:
            self._connections[id(connection)] = connection

    def discard(self, connection: socket.socket) -> None:
        """It has asked, or is gone."""
        with self._lock:
            self._connections.pop(id(connection), None)

    def send_away_first(self) -> bool:
        """Whoever came first, so that its thread ends; False: there is none."""
        with self._lock:
            first = next(iter(self._connections), None)
            if first is None:
                return False
            connection = self._connections.pop(first)
            with contextlib.suppress(OSError):
                # Not what ssl makes of it, which would take the keys from under that thread.
                socket.socket.shutdown(connection, socket.SHUT_RDWR)
        return True
