"""What a file holds that is exchanged while we run: a token, a certificate."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from holdfast_sidecar.config.settings import BadInput

logger = logging.getLogger(__name__)

T = TypeVar("T")

Stamp = tuple[tuple[int, int, int], ...]


class Followed(Generic[T]):
    """Made of these files, and made anew when one of them changes.

    Whoever exchanges two files does it one after the other: what does not fit together is told once
    and the former goes on being used. `make` raises OSError or ValueError, of which ssl's are some.
    """

    def __init__(self, paths: Sequence[Path], make: Callable[[], T]) -> None:
        self._paths = paths
        self._make = make
        self._lock = threading.Lock()
        self._stamp = self._read_stamp()
        self._made = self._first()

    def current(self) -> T:
        """As the files have it now."""
        with self._lock:
            try:
                stamp = self._read_stamp()
            except BadInput as error:
                self._complain(str(error), ())
                return self._made
            if stamp != self._stamp:
                self._renew(stamp)
            return self._made

    def _first(self) -> T:
        try:
            return self._make()
        except (OSError, ValueError) as error:
            raise BadInput(f"can't use {self._names()}: {_words(error)}") from None

    def _renew(self, stamp: Stamp) -> None:
        try:
            self._made = self._make()
        except (OSError, ValueError) as error:
            self._complain(f"can't use {self._names()}: {_words(error)}", stamp)
            return
        self._stamp = stamp
        logger.info("read %s again: it has changed", self._names())

    def _complain(self, words: str, stamp: Stamp) -> None:
        """Once, until the files change again."""
        if stamp != self._stamp:
            logger.error("%s; going on with what was there before", words)
        self._stamp = stamp

    def _read_stamp(self) -> Stamp:
        try:
            facts = [path.stat() for path in self._paths]
        except OSError as error:
            raise BadInput(f"can't read {error.filename}: {error.strerror}") from None
        return tuple((fact.st_ino, fact.st_mtime_ns, fact.st_size) for fact in facts)

    def _names(self) -> str:
        return " with ".join(map(str, self._paths))


def _words(error: Exception) -> str:
    """ssl's own words name a line of its C source."""
    return getattr(error, "strerror", None) or str(error)
