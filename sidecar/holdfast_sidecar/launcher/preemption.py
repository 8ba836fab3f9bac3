"""A scheduler asks for this node back: remembered from the signal on, so the job is saved first.

What becomes of the job is for the leader to decide (`decisions.preemption`); the time for it is
kept here.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import time
from collections.abc import Callable, Iterator
from types import FrameType

from torch.distributed.elastic.multiprocessing import SignalException

ASKING = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
"""SIGTERM, and what Slurm's --signal is mostly given, if --signals-to-handle has it. SIGINT, SIGHUP
and SIGQUIT come from a person at a terminal, who does not want to wait; SIGHUP without one tells
that it is gone, as when a connection breaks, and then nobody waits."""

OTHERS = (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)

AGAIN_S = 2.0
"""A scheduler may signal a process itself and through srun, within a fraction of a second; whoever
sends one after that is not content to wait."""


class Preempted(Exception):
    """This launcher leaves as it was asked to. The job may be started again, and goes on."""


class Preemption:
    """What was asked of this launcher so far. `heard` is called from the signal handler."""

    def __init__(
        self,
        grace_s: float,
        heard: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
        at_terminal: Callable[[], bool] | None = None,
    ) -> None:
        self._grace_s = grace_s
        self._heard = heard
        self._clock = clock
        self._at_terminal = at_terminal or has_terminal
        self._since_s = 0.0
        self._ends_by: signal.Signals | None = None
        self._waits = False
        self.asked: signal.Signals | None = None
        self.is_told = False
        """Whether the job's leader was told."""

    @property
    def grace_s(self) -> float:
        """Seconds from the signal until this node is given up."""
        return self._grace_s

    def heed(self) -> None:
        """Handle what the launcher handles, from now on."""
        for number in (*ASKING, *OTHERS):
            if callable(signal.getsignal(number)):
                signal.signal(number, self.handle)

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Within this, there are ranks that may be saved first: a signal that asks can wait."""
        self._waits = True
        try:
            yield
        finally:
            self._waits = False

    def receive(self, number: int) -> None:
        """Take a signal in; raises SignalException for one that can't wait."""
        now_s = self._clock()
        asks = number in ASKING or (number == signal.SIGHUP and not self._at_terminal())
        if asks and self._waits and self.asked is None:
            self.asked, self._since_s = signal.Signals(number), now_s
            self._heard()
        elif not asks or self.asked is None or now_s - self._since_s > AGAIN_S:
            self._ends_by = signal.Signals(number)
            self._heard()
            raise at_once(self._ends_by)

    def check(self) -> None:
        """Raise again what was raised in a place that swallowed it: a destructor, a callback."""
        if self._ends_by is not None:
            raise at_once(self._ends_by)

    def left_s(self) -> float:
        """Until this node is given up; infinite where nobody wants it back."""
        return math.inf if self.asked is None else self._grace_s - (self._clock() - self._since_s)

    def is_over(self) -> bool:
        """Whether the time for saving is over."""
        return self.left_s() <= 0

    def handle(self, number: int, frame: FrameType | None) -> None:
        """The signal handler."""
        self.receive(number)


def has_terminal() -> bool:
    """Whether this process has a controlling terminal that is still there."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True


def at_once(number: signal.Signals) -> SignalException:
    """What ends a launcher that has nothing to wait for."""
    return SignalException(f"process {os.getpid()} received {number.name}", sigval=number)
