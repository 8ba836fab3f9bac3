"""SIGTERM in a rank that can be saved: noted in its page and survived, so that it can be.

A scheduler signals every process of a job at once. Whoever started the rank ends it by END_SIGNAL
when it has been saved; a handler of the script's own is left alone, and gets every SIGTERM.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from types import FrameType

from holdfast.contract import environment, switches
from holdfast.contract.page import Flag, Word
from holdfast.recording.interface import Recording

AGAIN_NS = 2_000_000_000
"""A scheduler, srun and torchrun may each pass the same SIGTERM on, within a fraction of a second;
whoever sends one after that is not content to wait."""


def hold(recording: Recording, environ: Mapping[str, str] = os.environ) -> None:
    """Survive SIGTERM from now on, where whoever started this rank can end it all the same."""
    if environ.get(environment.HOLDS_TERMINATION) != "1" or not switches.is_on("termination"):
        return
    if threading.current_thread() is not threading.main_thread():
        return  # Python lets only that one set handlers
    if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        return
    signal.signal(signal.SIGTERM, TerminationHandler(recording))
    # What system calls the training is in shall not fail for it.
    signal.siginterrupt(signal.SIGTERM, False)
    os.register_at_fork(before=_defer, after_in_parent=_undefer, after_in_child=_start_anew)
    recording.add_flag(Flag.HOLDS_TERMINATION)


def look_again(recording: Recording) -> None:
    """A script that has set a handler of its own since is ended by SIGTERM, as it expects."""
    flags = recording.word(Word.FLAGS)
    if flags & Flag.HOLDS_TERMINATION and not is_held():
        recording.set_word(Word.FLAGS, flags & ~Flag.HOLDS_TERMINATION)


def is_held() -> bool:
    """Whether SIGTERM is survived in this process."""
    return isinstance(signal.getsignal(signal.SIGTERM), TerminationHandler)


def let_go() -> None:
    """Die of SIGTERM again: a forked child is no rank, and its parent may want to end it so."""
    if is_held():
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


_mask_before_fork = threading.local()
"""Of the thread that forks; None where SIGTERM is not ours."""


def _defer() -> None:
    """A SIGTERM may come before the child has let go of it, and Python would forget it there."""
    _mask_before_fork.value = (
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM}) if is_held() else None
    )


def _undefer() -> None:
    if _mask_before_fork.value is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, _mask_before_fork.value)


def _start_anew() -> None:
    let_go()
    _undefer()


class TerminationHandler:
    """The handler."""

    def __init__(self, recording: Recording, clock_ns: Callable[[], int] = time.monotonic_ns):
        self._recording = recording
        self._clock_ns = clock_ns
        self._parent = os.getppid()

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Note the first; of a later one, or as an orphan that nobody would end, die."""
        now_ns = self._clock_ns()
        noted_ns = self._recording.word(Word.TERMINATION_NS)
        if os.getppid() != self._parent or (noted_ns and now_ns - noted_ns > AGAIN_NS):
            let_go()
            signal.raise_signal(signal.SIGTERM)
        elif not noted_ns:
            self._recording.set_word(Word.TERMINATION_NS, now_ns)
