"""A folder that remembers what was written into it: hashed on the way, and read back afterwards."""

from __future__ import annotations

import errno
import hashlib
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, cast

from holdfast.permit import Permit
from holdfast.storage import Folder, written_here
from holdfast_sidecar.checkpoints.hashing import hash_file
from holdfast_sidecar.records.checkpoint import FileFact

log = logging.getLogger(__name__)

_PIECE = 8 << 20
"""A tensor of gigabytes comes in one piece; progress is told, and a stop heard, more often."""


class HashedFolder(Folder):
    """Writes go to the inner folder; `facts` says what they were. `tell` hears of bytes moved."""

    def __init__(self, inner: Folder, tell: Callable[[int], object] = lambda _: None) -> None:
        self.url = inner.url
        self.created = inner.created
        self.facts: dict[str, FileFact] = {}
        self.trouble: OSError | None = None
        """The first error of a write: torch hides it behind one of its own."""
        self._inner = inner
        self._tell = tell

    @contextmanager
    def create(self, name: str) -> Iterator[BinaryIO]:
        """Write a file; its hash is known once it is there."""
        with self._inner.create(name) as stream:
            hashing = _Hashing(stream, self._tell)
            try:
                yield cast("BinaryIO", hashing)
            except OSError as error:
                self.trouble = self.trouble or error
                raise
            finally:
                self.trouble = self.trouble or hashing.trouble
        self.facts[name] = FileFact(hashing.size, hashing.digest.hexdigest())

    def write(self, name: str, data: bytes) -> None:
        """Write a small file."""
        self._inner.write(name, data)
        self._tell(len(data))
        self.facts[name] = FileFact(len(data), hashlib.sha256(data).hexdigest())

    def read_back(self) -> None:
        """Compare storage with what was written; raises OSError where it differs."""
        for name, fact in self.facts.items():
            if hash_file(self._inner, name, self._tell) != fact:
                raise OSError(errno.EIO, f"{name} reads back other than it was written", self.url)

    def remove_written(self) -> None:
        """Remove what was written, if it can be: a full disk is to have its room again."""
        for name in self.facts:
            try:
                self._inner.remove(name, written_here(self._inner, name))
            except OSError as error:
                log.warning("%s stays behind in %s: %s", name, self.url, error)

    def open(self, name: str) -> BinaryIO:
        """As the inner one."""
        return self._inner.open(name)

    def size(self, name: str) -> int:
        """As the inner one."""
        return self._inner.size(name)

    def modified_unix_s(self, name: str) -> float:
        """As the inner one."""
        return self._inner.modified_unix_s(name)

    def names(self) -> list[str]:
        """As the inner one."""
        return self._inner.names()

    def children(self) -> list[str]:
        """As the inner one."""
        return self._inner.children()

    def remove(self, name: str, permit: Permit) -> None:
        """As the inner one."""
        self._inner.remove(name, permit)

    def remove_known(self, turn: Callable[[str], int | None], permit: Permit) -> None:
        """As the inner one."""
        self._inner.remove_known(turn, permit)


class _Hashing:
    """A stream that hashes what is written."""

    def __init__(self, stream: BinaryIO, tell: Callable[[int], object]) -> None:
        self._stream = stream
        self._tell = tell
        self.digest = hashlib.sha256()
        self.size = 0
        self.trouble: OSError | None = None

    def write(self, data: Any) -> int:
        """All of it, or an error."""
        whole = memoryview(data).cast("B")
        for start in range(0, len(whole), _PIECE):
            piece = whole[start : start + _PIECE]
            try:
                self._stream.write(piece)
                self._tell(len(piece))
            except OSError as error:
                self.trouble = self.trouble or error
                raise
            self.digest.update(piece)
            self.size += len(piece)
        return len(whole)

    def tell(self) -> int:
        """Bytes written so far."""
        return self.size

    def flush(self) -> None:
        """The folder sees to it at the end."""

    def close(self) -> None:
        """The folder closes it."""
