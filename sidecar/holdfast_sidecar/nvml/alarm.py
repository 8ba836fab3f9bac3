"""Wakes the loop the moment a child says something."""

from __future__ import annotations

import contextlib
import select
import time
from collections.abc import Callable

from holdfast_sidecar.linux.threads import start_thread

REST_S = 0.02
"""After a wake: a storm of events wakes the loop fifty times a second, not a thousand times."""


class Alarm:
    """A thread that sleeps until something is written to one of the pipes, and then calls `wake`.

    It reads nothing, and is told of each write once: whoever is woken reads all there is. A pipe is
    forgotten when it is closed.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._epoll: select.epoll | None = None

    def listen(self, pipe: int) -> None:
        """Wake for this one, too."""
        if self._epoll is None:
            epoll = select.epoll()
            if start_thread(self._watch, "nvml-alarm", (epoll,)) is None:
                epoll.close()
                return  # what this pipe says is read at the next tick
            self._epoll = epoll
        self._epoll.register(pipe, select.EPOLLIN | select.EPOLLET)

    def _watch(self, epoll: select.epoll) -> None:
        while True:
            with contextlib.suppress(InterruptedError):
                epoll.poll()
            self._wake()
            time.sleep(REST_S)
