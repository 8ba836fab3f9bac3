"""A link between two sockets that can be cut without either side being told."""

from __future__ import annotations

import contextlib
import socket
import threading
from types import TracebackType


class Link:
    """Passes on what comes, in both directions, until so many bytes went to the caller."""

    def __init__(self, target: tuple[str, int], cut_after: int, *, hangs_up: bool = False) -> None:
        """hangs_up: every connection is closed after so many bytes."""
        self._target = target
        self._each = cut_after if hangs_up else 0
        self.passed = 0
        """Bytes that went to callers."""
        self._left: float = cut_after
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []

    @property
    def address(self) -> str:
        """Where to call instead."""
        return f"127.0.0.1:{self._listening.getsockname()[1]}"

    def heal(self) -> None:
        """Pass everything on, for those who call from now on."""
        self._left = float("inf")

    def __enter__(self) -> Link:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for each in (self._listening, *self._open):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                caller, _ = self._listening.accept()
                served = socket.create_connection(self._target)
                self._open += [caller, served]
                self._left = self._each or self._left
                for ends in ((caller, served), (served, caller)):
                    threading.Thread(target=self._pass_on, args=ends, daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        is_answer = target in self._open[::2]
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if is_answer:
                    self._left -= len(data)
                if self._left < 0 and self._each:
                    source.shutdown(socket.SHUT_RDWR)
                    target.shutdown(socket.SHUT_RDWR)
                if self._left < 0:
                    return  # both ends stay open, and hear nothing more
                self.passed += len(data) if is_answer else 0
                target.sendall(data)
