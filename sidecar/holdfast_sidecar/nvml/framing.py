"""Frames on a child's pipe: length and checksum before the content, so that none is half read.

The standard library alone, and little of it: the children import this.
"""

from __future__ import annotations

import binascii
import struct

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


class Frames:
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
