"""How far something long is, for who waits: one line that changes, or a few lines in a log."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TextIO

EVERY_S = 10.0
"""In a log, the same work is told of so often at most."""


class ProgressLine:
    """Tells of states as they come; the first word of a state says which work it is about."""

    def __init__(
        self, stream: TextIO, is_quiet: bool = False, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._stream = stream
        self._is_quiet = is_quiet
        self._is_terminal = stream.isatty()
        self._clock = clock
        self._told = ""
        self._told_at_s = 0.0

    def tell(self, state: str) -> None:
        """Say it, unless it is nothing new."""
        if self._is_quiet or state == self._told:
            return
        if self._is_terminal:
            self._write(f"\r\x1b[K{state} …")
        elif self._is_news(state):
            self._write(f"{state} …\n")
        else:
            return
        self._told, self._told_at_s = state, self._clock()

    def close(self) -> None:
        """Let what follows begin on a clean line."""
        if self._is_terminal and self._told:
            self._write("\r\x1b[K")
            self._told = ""

    def _is_news(self, state: str) -> bool:
        is_same_work = state.split(" ", 1)[0] == self._told.split(" ", 1)[0]
        return not is_same_work or self._clock() - self._told_at_s >= EVERY_S

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()
