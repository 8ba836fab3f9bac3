"""Giving way: little CPU, and the disk only when nobody else wants it."""

from __future__ import annotations

import ctypes
import os
import platform
import threading
import time
from pathlib import Path

from holdfast_sidecar.precedence import AUTOGROUP

PRIORITY = 10
"""Of a thread: a tenth of a core that ranks keep busy. It may never be raised again, so it is not
the least, 19: where all cores are busy, importing torch alone would take minutes."""

SESSION_PRIORITY = 15
"""Of a session: a thirtieth, and whatever ranks leave while they wait for each other; a tenth is
felt in every step. It has an end, so that it may be so little."""

PATIENCE_S = 8.0
"""Where more ranks compute than there are cores nothing would be left: whoever asks for a
checkpoint, and the next periodic one, would wait for minutes. So the giving way has an end."""

TRIES = 5
REFUSED_FOR_S = 0.1
"""The kernel takes a change from one ordinary process of the machine so often, and no oftener."""

_IOPRIO_SET = {"x86_64": 251, "aarch64": 30}
_WHO_PROCESS = 1
_CLASS_IDLE = 3 << 13


def be_meek() -> None:
    """This thread only, on Linux: quick questions are answered by others at ordinary priority."""
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), PRIORITY)
    number = _IOPRIO_SET.get(platform.machine())
    if number is not None:  # no wrapper in libc; a kernel that refuses leaves things as they are
        ctypes.CDLL(None).syscall(number, _WHO_PROCESS, 0, _CLASS_IDLE)


class Session:
    """This process's share of the machine where the kernel deals it out by sessions.

    There (`sched_autogroup_enabled`, outside of control groups) a thread's niceness counts only
    against threads of its own session, and every rank leads one. So the session of its own that
    the writer leads is made nice as a whole; unlike a thread it may be raised again.
    """

    def __init__(self, file: Path = Path(AUTOGROUP)) -> None:
        self._file = file
        self._priority = 0
        self._end: threading.Timer | None = None
        self._lock = threading.Lock()

    def give_way(self) -> None:
        """Until somebody waits for an answer, PATIENCE_S at most."""
        self._set(SESSION_PRIORITY)
        if self._end is not None:
            self._end.cancel()
        self._end = threading.Timer(PATIENCE_S, self.stand_up)
        self._end.daemon = True
        try:
            self._end.start()
        except RuntimeError:  # no thread is left that would end it
            self.stand_up()

    def stand_up(self) -> None:
        """Somebody waits."""
        self._set(0)

    def _set(self, priority: int) -> None:
        with self._lock:
            for _ in range(TRIES if priority != self._priority else 0):
                try:
                    self._file.write_text(str(priority))
                except BlockingIOError:
                    time.sleep(REFUSED_FOR_S)
                except OSError:
                    return  # another kernel: niceness counts for threads
                else:
                    self._priority = priority
                    return
