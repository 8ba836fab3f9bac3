"""Keeps a server of our own: one that ends unasked is started again, empty, where it was.

Nothing that it held is brought back here: who wrote it writes it again (docs/redis.md).
"""

from __future__ import annotations

import logging
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Collection
from pathlib import Path

from holdfast_sidecar.config.settings import RedisSettings
from holdfast_sidecar.linux.threads import MORE_THREADS, NONE_LEFT, start_patiently
from holdfast_sidecar.records.formatting import how_it_ended
from holdfast_sidecar.server.embedded import EmbeddedServer

logger = logging.getLogger(__name__)

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 30.0
"""Between an end and the next start. It is never given up: without a server no failure is answered,
and two processes a minute disturb nobody."""

RECENT_S = 1800.0
"""An end longer ago than this says nothing of the next one."""

ENDS_KEPT = 16
"""More than it takes to the longest pause."""

JOIN_S = 5.0


class KeptServer:
    """Keeps one server running until it is stopped; `tell` gets a line when that took doing."""

    def __init__(self, server: EmbeddedServer, tell: Callable[[str], object] | None = None) -> None:
        self._server = server
        self._tell = logger.warning if tell is None else tell
        self._ends: deque[float] = deque(maxlen=ENDS_KEPT)
        self._stopping = threading.Event()
        self._launching = threading.Lock()
        self._keeper: threading.Thread | None = None

    @property
    def pid(self) -> int:
        """Process id of the server as it is now."""
        return self._server.pid

    @property
    def url(self) -> str:
        """Its address, the same for all its processes."""
        return self._server.url

    @property
    def password_file(self) -> Path:
        """Where its password lies, the same for all its processes."""
        return self._server.password_file

    @property
    def directory(self) -> Path:
        """Where its files are."""
        return self._server.directory

    @property
    def settings(self) -> RedisSettings:
        """How to connect to it."""
        return self._server.settings

    def start(self) -> None:
        """Keep it from now on, in a thread; without one it serves as long as it runs."""
        # The kernel ends a server with the thread that launched it: this one stays until it ended.
        self._keeper = start_patiently(self._keep, "holdfast-server")
        if self._keeper is None:
            self._tell(
                f"{NONE_LEFT}: this job's own Redis serves, and is not started again should it end;"
                f" {MORE_THREADS}"
            )

    def stop(self) -> None:
        """End it for good and remove its files."""
        self._stopping.set()
        with self._launching:  # none is launched after this
            server = self._server
        server.stop()
        if self._keeper is not None:
            self._keeper.join(JOIN_S)

    def is_running(self) -> bool:
        """Whether its process is there."""
        return self._server.is_running()

    def _keep(self) -> None:
        while True:
            code = self._server.process.wait()
            if self._stopping.is_set():
                return
            self._start_again(how_it_ended(code))

    def _start_again(self, how: str) -> None:
        """Try until it runs, or until the end was asked for."""
        has_told = False
        while True:
            now = time.monotonic()
            self._ends.append(now)
            if self._stopping.wait(pause_s(self._ends, now)):
                return
            obstacle = self._try_to_start()
            if self._stopping.is_set():
                return
            if not obstacle:
                break
            if not has_told:
                self._tell(
                    f"this job's own Redis {how} and can't be started again ({obstacle}): "
                    "it is tried until it can"
                )
            has_told = True
        self._tell(f"this job's own Redis {how} and runs again, empty ({self._server.log})")

    def _try_to_start(self) -> str:
        """Why it does not run; empty when it does."""
        with self._launching:
            if self._stopping.is_set():
                return "it was stopped"
            try:
                self._server = self._server.launch_again()
            except (OSError, subprocess.SubprocessError) as error:
                return str(error)
        return "" if self._server.become_ready() else self._server.last_line()


def pause_s(ends: Collection[float], now: float) -> float:
    """How long to wait before the next start; `ends`: when it ended or did not start, until now."""
    recent = sum(1 for end in ends if now - end < RECENT_S)
    return min(FIRST_PAUSE_S * 2.0 ** max(recent - 1, 0), LONGEST_PAUSE_S)
