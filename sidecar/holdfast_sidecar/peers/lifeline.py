"""What a transfer hangs on: once cut, it ends at once, wherever it waits."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator


class Lifeline:
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
