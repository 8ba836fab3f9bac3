"""How long a Grafana is waited for, all requests together.

The limits of an HTTP library count from byte to byte: an answer that drips has none.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

AFTERWARDS_S = 2.0
"""What a request gets when the time is over: what was pushed by then is put back, and saving a
dashboard on a busy Grafana takes a second or two."""


class OutOfTime(Exception):
    """The request that was under way was given up."""


class Deadline:
    """From when it is made on."""

    def __init__(self, limit_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until_s = clock() + limit_s

    def left_s(self) -> float:
        """For a request that begins now."""
        left_s = self._until_s - self._clock()
        return left_s if left_s > 0 else AFTERWARDS_S

    @contextmanager
    def over_request(self) -> Iterator[None]:
        """Ends what is done within by OutOfTime, in whatever call it stands; in a program's first
        thread alone, where commands run and signals arrive."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        handler = signal.signal(signal.SIGALRM, _give_up)
        left_s, _ = signal.setitimer(signal.ITIMER_REAL, self.left_s())
        began_s = time.monotonic()
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, handler)
            if left_s:  # somebody else's
                waited_s = time.monotonic() - began_s
                signal.setitimer(signal.ITIMER_REAL, max(left_s - waited_s, 0.001))


def _give_up(*_: object) -> None:
    raise OutOfTime
