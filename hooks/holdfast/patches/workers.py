"""DataLoader workers of a rank that holds SIGTERM: they must not die of it before it is saved.

They start with the signal blocked and ignore it by a handler, which programs that they start don't
inherit (a mask or SIG_IGN they would). So their rank ends them by SIGKILL where torch and
multiprocessing would send SIGTERM.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from holdfast.contract.ending_processes import signal_child
from holdfast.contract.page import Flag, Word
from holdfast.contract.permit import own_child
from holdfast.guard import Guard
from holdfast.rank import importing
from holdfast.recording.recorder import Recorder

STATEFUL = "torchdata.stateful_dataloader.stateful_dataloader"

FORK_SERVER = "holdfast.patches.fork_server"


def install(torch: Any, recorder: Recorder, guard: Guard) -> None:
    """Hook the iterators that start workers: torch's, and torchdata's once that is imported."""
    import sys

    dataloader = torch.utils.data.dataloader
    forget = torch.utils.data._utils.signal_handling._remove_worker_pids
    spare = functools.partial(_spare, recorder=recorder, guard=guard, forget=forget)

    spare(dataloader._MultiProcessingDataLoaderIter)

    def stateful() -> None:
        found = getattr(sys.modules[STATEFUL], "_StatefulMultiProcessingDataLoaderIter", None)
        if found is not None:
            spare(found)

    importing.once(STATEFUL, lambda: guard.run("workers", stateful))


def _spare(iterator: Any, recorder: Recorder, guard: Guard, forget: Callable[[int], None]) -> None:
    start = iterator.__init__
    prepare = guard.wrap("workers begin", _prepare, None)
    settle = guard.wrap("workers have begun", _settle, None)

    @functools.wraps(start)
    def wrapper(self: Any, loader: Any, *args: Any, **kwargs: Any) -> None:
        if not recorder.word(Word.FLAGS) & Flag.HOLDS_TERMINATION:
            start(self, loader, *args, **kwargs)
            return
        prepare(loader.multiprocessing_context)
        with _term_blocked(), _sparing_init(loader):
            start(self, loader, *args, **kwargs)
        settle(self, forget)

    iterator.__init__ = wrapper


def _prepare(context: Any) -> None:
    """Start the helpers of multiprocessing ahead: they have ways of their own with SIGTERM."""
    import multiprocessing

    method = (context or multiprocessing).get_start_method()
    if method == "fork":
        return
    from multiprocessing import forkserver, resource_tracker

    # Starting it later would unblock the signal in the middle (Python 3.11).
    resource_tracker.ensure_running()
    if method == "forkserver":
        preloaded = forkserver._forkserver._preload_modules  # type: ignore[attr-defined]
        if FORK_SERVER not in preloaded:
            forkserver.set_forkserver_preload([*preloaded, FORK_SERVER])
        forkserver.ensure_running()


@contextlib.contextmanager
def _term_blocked() -> Iterator[None]:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def _sparing_init(loader: Any) -> Iterator[None]:
    """Torch reads the loader's `worker_init_fn` once, while the iterator is made."""
    given = loader.worker_init_fn
    loader.worker_init_fn = SparedWorker(given)
    try:
        yield
    finally:
        loader.worker_init_fn = given


def _settle(iterator: Any, forget: Callable[[int], None]) -> None:
    for worker in iterator._workers:
        started = worker._popen
        started.terminate = functools.partial(_end, started, forget, id(iterator))


def _end(started: Any, forget: Callable[[int], None], iterator: int) -> None:
    """End a worker. Its rank is told by torch of workers that were killed, unless it forgets."""
    with contextlib.suppress(ValueError):  # forgotten already
        forget(iterator)
    with contextlib.suppress(ProcessLookupError):
        if started.returncode is None:
            signal_child(own_child(started.pid))


class SparedWorker:
    """What a worker calls first, in place of the user's own function, which comes after."""

    def __init__(self, given: Callable[[int], None] | None) -> None:
        self._given = given

    def __call__(self, worker: int) -> None:
        """In the worker: survive SIGTERM, then be as the user wants it."""
        survive()
        if self._given is not None:
            self._given(worker)


def survive() -> None:
    """Let SIGTERM pass, in this process and not in those that it starts."""
    signal.signal(signal.SIGTERM, _let_pass)
    signal.siginterrupt(signal.SIGTERM, False)
    os.register_at_fork(after_in_child=_die_of_it)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})


def _let_pass(number: int, frame: FrameType | None) -> None:
    """Nothing to do: the rank is asked to end, and ends its workers itself."""


def _die_of_it() -> None:
    if signal.getsignal(signal.SIGTERM) is _let_pass:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
