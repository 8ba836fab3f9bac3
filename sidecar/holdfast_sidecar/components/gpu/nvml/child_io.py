"""A few bytes of memory in which a child notes what it is about to ask, and that it is alive.

The standard library alone, and little of it: the children import this. `note` reads it.
"""

from __future__ import annotations

import binascii
import mmap
import os
import struct
import time

OTHERS = {
    0x200: "single_bit_ecc_storm",
    0x400: "dram_retirement",
    0x800: "dram_retirement_failure",
    0x1000: "poison_non_fatal",
    0x2000: "poison_fatal",
    0x4000: "gpu_unavailable",
    0x8000: "recovery_action",
}
"""Of nvml.h 13; a driver that does not know one of them does not call it supported."""


WAIT_MS = 500
"""One wait. A driver that answers is heard of this often, so that one that does not is known."""


LAYOUT = struct.Struct("<Qd112s")
"""Signs of life so far, CLOCK_MONOTONIC of the newest note, what is asked (empty: nothing)."""


class SharedStatus:
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


# Frames on a child's pipe: length and checksum before the content, so that none is half read.
#
# The standard library alone, and little of it: the children import this.

MAGIC = b"HfN1"
_HEAD = struct.Struct("<4sII")
"""Magic, length and CRC-32 of the content."""

MOST_BYTES = 2**20
"""A reading of eight GPUs is some 20 kB; one of a thousand MIG instances would not be this long."""


class BadFrameError(Exception):
    """What came is no frame of ours."""


def frame(content: bytes) -> bytes:
    """The content as it goes through the pipe."""
    return _HEAD.pack(MAGIC, len(content), binascii.crc32(content)) + content


class FrameReader:
    """Cuts a stream into the contents of its frames; what is not whole yet waits for its rest."""

    def __init__(self) -> None:
        self._rest = b""

    def cut(self, chunk: bytes) -> list[bytes]:
        """All that are whole by now. Raises BadFrameError, and is of no use any more then."""
        self._rest += chunk
        contents: list[bytes] = []
        while (content := self._next()) is not None:
            contents.append(content)
        return contents

    def _next(self) -> bytes | None:
        if len(self._rest) < _HEAD.size:
            if not MAGIC.startswith(self._rest[: len(MAGIC)]):
                raise BadFrameError("no frame begins like this")
            return None
        magic, length, checksum = _HEAD.unpack_from(self._rest)
        if magic != MAGIC:
            raise BadFrameError("no frame begins like this")
        if length > MOST_BYTES:
            raise BadFrameError(f"a frame of {length} bytes")
        end = _HEAD.size + length
        if len(self._rest) < end:
            return None
        content, self._rest = self._rest[_HEAD.size : end], self._rest[end:]
        if binascii.crc32(content) != checksum:
            raise BadFrameError("the checksum of a frame is wrong")
        return content


# A child's words: one frame each, a word of what it is and then its content.
#
# The standard library alone, and little of it: the children import this.

READING = "reading"
"""All GPUs, as JSON."""
CHANGES = "changes"
"""What has changed of them since the reading before."""
EVENT = "event"
"""Wall clock, kind, data and PCI address (or -) of one event."""
LISTENING = "listening"
"""How many GPUs' events are waited for, and why not those of the others."""
ABSENT = "absent"
"""There is no library or no driver, and why it seems so; the child ends."""
FAILED = "failed"
"""The driver as a whole answers with an error; the child ends."""


class FrameWriter:
    """Writes to the pipe, and waits while it is full."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def say(self, word: str, content: str) -> None:
        """One whole frame. Raises BrokenPipeError when nobody listens any more."""
        left = memoryview(frame(f"{word} {content}".encode()))
        while left:
            left = left[os.write(self._descriptor, left) :]
