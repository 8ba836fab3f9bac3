"""A scheduler asks for this node back: remembered from the signal on, so the job is saved first.

What becomes of the job is for the leader to decide (`decisions.preemption`); the time for it is
kept here.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from types import FrameType

from torch.distributed.elastic.multiprocessing import SignalException

ASKING = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
"""SIGTERM, and what Slurm's --signal is mostly given, if --signals-to-handle has it. SIGINT, SIGHUP
and SIGQUIT come from a person at a terminal, who does not want to wait."""

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
    ) -> None:
        self._grace_s = grace_s
        self._heard = heard
        self._clock = clock
        self._since_s = 0.0
        self.asked: signal.Signals | None = None
        self.is_told = False
        """Whether the job's leader was told."""

    @property
    def grace_s(self) -> float:
        """Seconds from the signal until this node is given up."""
        return self._grace_s

    @contextlib.contextmanager
    def heeded(self) -> Iterator[None]:
        """Within this, the first signal asks, and one that comes later raises SignalException."""
        before = {number: signal.getsignal(number) for number in ASKING}
        handled = {number: handler for number, handler in before.items() if callable(handler)}
        try:
            for number in handled:
                signal.signal(number, self._handle)
            yield
        finally:
            for number, handler in handled.items():
                signal.signal(number, handler)

    def receive(self, number: int) -> None:
        """Take a signal in; raises SignalException when it was asked before."""
        now_s = self._clock()
        if self.asked is None:
            self.asked, self._since_s = signal.Signals(number), now_s
            self._heard()
        elif now_s - self._since_s > AGAIN_S:
            raise self.at_once(signal.Signals(number))

    def is_over(self) -> bool:
        """Whether the time for saving is over."""
        return self.asked is not None and self._clock() - self._since_s >= self._grace_s

    def at_once(self, number: signal.Signals) -> SignalException:
        """What ends a launcher that has nothing to wait for."""
        return SignalException(f"process {os.getpid()} received {number.name}", sigval=number)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.receive(number)
