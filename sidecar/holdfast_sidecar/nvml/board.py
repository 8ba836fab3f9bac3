"""A few bytes of memory in which a child notes what it is about to ask, and that it is alive.

The standard library alone, and little of it: the children import this. `note` reads it.
"""

from __future__ import annotations

import mmap
import struct
import time

LAYOUT = struct.Struct("<Qd112s")
"""Signs of life so far, CLOCK_MONOTONIC of the newest note, what is asked (empty: nothing)."""


class Board:
    """The child's end."""

    def __init__(self, descriptor: int) -> None:
        self._page = mmap.mmap(descriptor, LAYOUT.size)
        self._beats = 0

    def about_to(self, asking: str) -> None:
        """Note what is asked next, in half a microsecond; what is too long is cut off."""
        self._write(asking)

    def alive(self) -> None:
        """An answer came."""
        self._beats += 1
        self._write("")

    def _write(self, text: str) -> None:
        LAYOUT.pack_into(self._page, 0, self._beats, time.monotonic(), text.encode())
