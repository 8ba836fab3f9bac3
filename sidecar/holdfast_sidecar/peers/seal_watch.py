"""Wakes whoever waits for a rank to seal a slot: the kernel tells when a slot's file is closed.

Only a wake-up; what is sealed stands in the headers. Where the kernel tells nothing, the waiter
looks by itself every so often.
"""

from __future__ import annotations

import ctypes
import logging
import os
import select
import struct
import threading
from pathlib import Path

from holdfast_sidecar.linux.threads import start_thread

log = logging.getLogger(__name__)

WATCHED_LOOK_S = 0.25
"""Between looks while the kernel tells: only for a wake-up that was lost."""

UNWATCHED_LOOK_S = 0.02
"""While it doesn't: soon enough not to double what a copy takes, at about 1 % of a core."""

_IN_CLOSE_WRITE = 0x8
_FLAGS = os.O_CLOEXEC | os.O_NONBLOCK
_EVENT = struct.Struct("iIII")
_IN_IGNORED = 0x8000


class SealWatch:
    """Watches one directory while it exists. `wait` may return for nothing, and may be late."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = -1
        self._turn = threading.Condition()
        self._count = 0
        self._closed = False

    @property
    def count(self) -> int:
        """How many wake-ups there were; to be read before looking, and given to `wait`."""
        return self._count

    def wait(self, seen: int) -> None:
        """Return when a slot was closed since `seen` was read, or it is time to look anyway."""
        self._start()
        with self._turn:
            timeout_s = UNWATCHED_LOOK_S if self._descriptor < 0 else WATCHED_LOOK_S
            self._turn.wait_for(lambda: self._count != seen or self._closed, timeout_s)

    def close(self) -> None:
        """Wake all waiters for good."""
        with self._turn:
            self._closed = True
            self._turn.notify_all()

    def _start(self) -> None:
        with self._turn:
            if self._descriptor >= 0 or self._closed or not self._directory.is_dir():
                return
            descriptor = self._libc.inotify_init1(_FLAGS)
            path = os.fsencode(self._directory)
            if descriptor < 0:
                return
            if self._libc.inotify_add_watch(descriptor, path, _IN_CLOSE_WRITE) < 0:
                os.close(descriptor)
                return
            self._descriptor = descriptor
            if start_thread(self._read, "seal-watch") is None:
                os.close(descriptor)
                self._descriptor = -1

    def _read(self) -> None:
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        while not self._closed:
            if not poll.poll(1000):
                continue
            events = os.read(self._descriptor, 65536)
            with self._turn:
                self._count += 1
                self._turn.notify_all()
                if _is_over(events):  # the directory is gone; a later waiter starts anew
                    break
        with self._turn:
            os.close(self._descriptor)
            self._descriptor = -1


def _is_over(events: bytes) -> bool:
    offset = 0
    while offset + _EVENT.size <= len(events):
        _, mask, _, length = _EVENT.unpack_from(events, offset)
        if mask & _IN_IGNORED:
            return True
        offset += _EVENT.size + length
    return False
