"""How long a Grafana is waited for, all requests together.

The limits of an HTTP library count from byte to byte: an answer that drips has none.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

AFTERWARDS_S = 2.0
"""What a request gets when the time is over: what was pushed by then is put back, and saving a
dashboard on a busy Grafana takes a second or two."""


class OutOfTime(Exception):
    """The request that was under way was given up."""


class Deadline:
    """Counts what requests take; what is decided between them takes nothing."""

    def __init__(self, limit_s: float) -> None:
        self._left_s = limit_s

    @contextmanager
    def over_request(self) -> Iterator[None]:
        """Ends what is done within by OutOfTime, in whatever call it stands; in a program's first
        thread alone, where commands run and signals arrive."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        given_s = self._left_s or AFTERWARDS_S
        handler = signal.signal(signal.SIGALRM, _give_up)
        before_s, _ = signal.setitimer(signal.ITIMER_REAL, given_s)
        try:
            yield
        finally:
            unused_s, _ = signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, handler)
            self._left_s = unused_s if self._left_s else 0.0
            if before_s:  # somebody else's alarm
                used_s = given_s - unused_s
                signal.setitimer(signal.ITIMER_REAL, max(before_s - used_s, 0.001))


def _give_up(*_: object) -> None:
    raise OutOfTime
