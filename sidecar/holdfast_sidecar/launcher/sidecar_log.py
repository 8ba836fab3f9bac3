"""The file that the node's sidecar and whatever it starts print into: bounded, also while they run.

They hold it open, each by a descriptor of its own or an inherited one, so that it can be neither
renamed nor opened anew. All of them append: what is cut off below them is gone, and they go on.
"""

from __future__ import annotations

import logging
import os
import stat
import threading
from pathlib import Path
from typing import BinaryIO

from holdfast.own_directory import make_closed
from holdfast_sidecar.linux.threads import start_thread

logger = logging.getLogger(__name__)

MOST_BYTES = 16 << 20
"""Of the file, and of the one before it. A healthy sidecar writes some kilobytes a day."""

LOOK_S = 5.0
"""What a child that prints without end writes meanwhile is the most that comes on top."""

_PIECE = 1 << 20


class SidecarLog:
    """Opened for each sidecar that is started; looked at until `close`."""

    def __init__(self, path: Path, earlier: Path) -> None:
        self._path = path
        self._earlier = earlier
        self._over = threading.Event()
        self._watch: threading.Thread | None = None

    def open(self) -> BinaryIO:
        """For whoever is started now; on a full disk it runs without."""
        try:
            make_closed(self._path.parent)
            self._try_to_rotate()
            opened = self._path.open("ab")
        except OSError as error:
            logger.warning("the sidecar's log can't be kept: %s", error)
            return Path(os.devnull).open("ab")
        if self._watch is None:
            self._watch = start_thread(self._look_after_it, "holdfast-sidecar-log")
        return opened

    def close(self) -> None:
        """Nobody writes any more."""
        self._over.set()

    def _look_after_it(self) -> None:
        while not self._over.wait(LOOK_S):
            self._try_to_rotate()

    def _try_to_rotate(self) -> None:
        try:
            rotate(self._path, self._earlier)
        except OSError as error:
            logger.debug("can't rotate %s: %s", self._path, error)


def rotate(path: Path, earlier: Path, most_bytes: int = MOST_BYTES) -> None:
    """Move the end of a file that is larger into `earlier`. Raises OSError.

    On a full disk nothing is moved, and the file is emptied once it is twice as large.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode) or facts.st_size <= most_bytes:
            return
        try:
            _copy_end(descriptor, facts.st_size, earlier, most_bytes)
        except OSError:
            if facts.st_size <= 2 * most_bytes:
                raise
        os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


def _copy_end(descriptor: int, size: int, target: Path, most_bytes: int) -> None:
    """What comes after `size` while this copies is copied as well, or lost: a line or two."""
    temporary = target.with_name(f"{target.name}.new")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    offset = size - most_bytes
    try:
        with os.fdopen(os.open(temporary, flags, 0o600), "wb", buffering=0) as file:
            while offset < size + _PIECE and (piece := os.pread(descriptor, _PIECE, offset)):
                offset += file.write(piece)
        temporary.replace(target)
    except OSError:
        os.truncate(temporary, 0)  # the room is needed by others
        raise
