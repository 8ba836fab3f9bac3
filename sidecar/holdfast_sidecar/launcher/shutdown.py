"""Ends the ranks of this node: all groups at once, with a grace that holds, then for good.

Ranks are children that nobody has reaped, so their process groups are surely theirs.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import select
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import FrameType

from torch.distributed.elastic.multiprocessing import SignalException

from holdfast.contract import ending_processes
from holdfast.contract.identity import read_status
from holdfast.contract.page import END_SIGNAL
from holdfast.contract.permit import own_child, own_group, own_session
from holdfast_sidecar.config.settings import BadInput
from holdfast_sidecar.launcher.rank_state import read_exit_code
from holdfast_sidecar.linux.process import is_tracker, sessions_of, wait_for_trackers

logger = logging.getLogger(__name__)

LOOK_S = 0.05
"""How often a stopped rank is looked for while the grace runs."""

KILL_PATIENCE_S = 5.0
"""After SIGKILL a process ends at once, unless the kernel holds it (D state)."""

HELD_PATIENCE_S = 60.0
"""For one that the kernel holds: it may hold its GPU's memory, which the next attempt needs."""

TELL_AFTER_S = 1.0
"""Most ranks end sooner; whoever asked for the end then hears what is waited for."""


def end_ranks(
    pids: Iterable[int],
    first: signal.Signals,
    grace_s: float,
    holding: Sequence[int] = (),
    is_asked: bool = False,
) -> None:
    """Signal every rank's group with `first`, wait at most `grace_s`, then SIGKILL what is left.

    Ranks that hold SIGTERM end at once, as they would without. Also kills what the ranks left
    behind in their groups (workers of theirs). A second signal to
    the launcher, which arrives here as an exception, cuts the grace short; `is_asked`: there was a
    first, and whoever sent it is told so.
    """
    ranks = list(pids)
    is_cut = True
    try:
        if grace_s > 0:
            end_holding(alive(holding), first)
            for pid in alive(ranks):
                signal_group(pid, first)
            end_s = time.monotonic() + grace_s
            if is_asked and grace_s > TELL_AFTER_S and not _wait_for_end(ranks, TELL_AFTER_S):
                words = "ending %d ranks, which get up to %g s; once more kills them"
                logger.warning(words, len(alive(ranks)), grace_s)
            _wait_for_end(ranks, end_s - time.monotonic())
        is_cut = False
    finally:
        late = alive(ranks)
        if late and is_cut:
            logger.warning("asked once more: %d ranks are killed", len(late))
        elif late and grace_s > 0:
            logger.warning("%d ranks did not end within %g s: killed", len(late), grace_s)
        trackers = _kill_but_trackers(ranks)
        await_killed(ranks, is_leaving=is_asked or is_cut)
        wait_for_trackers(trackers)
        for pid in ranks:
            signal_group(pid, signal.SIGKILL)


def await_killed(
    pids: Sequence[int],
    is_leaving: bool,
    wait: Callable[[Sequence[int], float], bool] | None = None,
) -> None:
    """Wait for ranks that were killed; longer, and with a word, for those that the kernel holds.
    is_leaving: no attempt follows here that they could be in the way of."""
    wait = wait or wait_for_exit
    if wait(pids, KILL_PATIENCE_S):
        return
    held = ", ".join(str(pid) for pid in alive(pids))
    words = "killed, and held by the kernel: pid %s; until it ends it may hold its GPU's memory"
    logger.warning(words, held)
    if not is_leaving and not wait(pids, HELD_PATIENCE_S):
        logger.warning("not waited for any longer: pid %s", held)


def end_holding(pids: Iterable[int], first: signal.Signals) -> None:
    """End ranks that hold SIGTERM where that would have ended them. They must not be reaped yet."""
    if first != signal.SIGTERM:
        return
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            ending_processes.signal_child(own_child(pid), END_SIGNAL)


def alive(pids: Sequence[int]) -> list[int]:
    """Those that have not ended."""
    return [pid for pid in pids if read_exit_code(pid) is None]


def signal_group(pid: int, number: signal.Signals) -> None:
    """Signal the group that a rank leads; the rank alone when it leads none (--run-path)."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if os.getpgid(pid) == pid:
            ending_processes.signal_group(own_group(pid), number)
        else:
            ending_processes.signal_child(own_child(pid), number)


def wait_for_exit(pids: Sequence[int], timeout_s: float) -> bool:
    """Wait until all have ended; False when the time was over first."""
    poller = select.poll()
    handles: dict[int, int] = {}
    try:
        for pid in alive(pids):
            with contextlib.suppress(ProcessLookupError):
                handles[os.pidfd_open(pid)] = pid
        for handle in handles:
            poller.register(handle, select.POLLIN)
        waiting = set(handles)
        end = time.monotonic() + timeout_s
        while waiting and (left := end - time.monotonic()) > 0:
            for handle, _ in poller.poll(left * 1000):
                poller.unregister(handle)
                waiting.discard(handle)
        return not waiting
    finally:
        for handle in handles:
            os.close(handle)


def _wait_for_end(ranks: Sequence[int], grace_s: float) -> bool:
    """Whether all have ended in time."""
    end = time.monotonic() + grace_s
    while (left := end - time.monotonic()) > 0:
        _kill_stopped(alive(ranks))
        if wait_for_exit(ranks, min(LOOK_S, left)):
            return True
    return False


def _kill_but_trackers(ranks: Sequence[int]) -> list[int]:
    """SIGKILL the ranks and all of their sessions but resource trackers; answer those."""
    trackers: list[int] = []
    for pid in {*ranks, *sessions_of(ranks)}:
        if is_tracker(pid):
            trackers.append(pid)
        else:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                permit = own_child(pid) if pid in ranks else own_session(pid, ranks)
                ending_processes.signal_child(permit)
    return trackers


def _kill_stopped(pids: Iterable[int]) -> None:
    """A stopped process can't act on SIGTERM: the grace would be waited for nothing."""
    for pid in pids:
        status = read_status(pid)
        if status is not None and status.state in ("T", "t"):
            signal_group(pid, signal.SIGKILL)


# Signals to the launcher become one exception, as in torch's agent, but from the very start.
#
# SIGHUP that is ignored already stays so: that is what nohup does.


def heeded(names: str) -> str:
    """Those of these names that are to be handled here."""
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        return names
    return ",".join(name for name in names.split(",") if name.strip() != signal.SIGHUP.name)


def handle(names: str) -> None:
    """Raise SignalException in the main thread for each of these (comma-separated) signals."""
    for name in names.split(","):
        number = getattr(signal.Signals, name.strip(), None)
        if number is None or number in (signal.SIGKILL, signal.SIGSTOP):
            raise BadInput(f"--signals-to-handle: {name.strip()!r} is no signal to be handled")
        signal.signal(number, _raise)


def ignore(names: str) -> None:
    """Nothing may interrupt what is left to do: a few seconds of tidying up."""
    for name in names.split(","):
        signal.signal(signal.Signals[name.strip()], signal.SIG_IGN)


def _raise(number: int, frame: FrameType | None) -> None:
    received = signal.Signals(number)
    raise SignalException(f"received {received.name}", sigval=received)


# A scheduler asks for this node back: remembered from the signal on, so the job is saved first.
#
# What becomes of the job is for the leader to decide (`policy.preemption`); the time for it is
# kept here.

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


class PreemptionNotice:
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
