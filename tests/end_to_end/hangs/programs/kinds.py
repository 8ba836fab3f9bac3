"""The twelve ways to hang: where in a step each strikes, and what it does.

Runs in any interpreter with torch; imports nothing of Holdfast, so that every launcher can be given
the same. None of these returns.
"""

from __future__ import annotations

import ctypes
import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

FORWARD = "forward"
LOADER = "loader"  # in the process that makes the batches: a worker of the DataLoader
FEEDER = "feeder"  # in a process of the script's own that feeds the DataLoader's queue
DATA = "data"  # in the rank, while it makes a batch itself
COLLECTIVE = "collective"  # in place of one that all ranks are in
OPTIMIZER = "optimizer"

FOR_EVER_S = 1_000_000


@dataclass(frozen=True)
class Kind:
    """One way to hang."""

    name: str
    place: str
    strike: Callable[..., None]
    is_provable: bool = True
    """Whether anything but silence shows that it will not end: a loop or a read only takes long."""


def stop_itself() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def stop_inside(collective: Callable[[], Any]) -> None:
    """Be stopped while inside the collective: the others enter it later."""
    threading.Timer(0.05, stop_itself).start()
    collective()


def skip(collective: Callable[[], Any]) -> None:
    """Go on with the step as if there were none: the next collective is of another group."""


def call_another(collective: Callable[[], Any]) -> None:
    """Enter the group's next collective, but not the same."""
    import torch

    group = collective.keywords["group"]  # type: ignore[attr-defined]
    everyone = [torch.zeros(1) for _ in range(torch.distributed.get_world_size())]
    torch.distributed.all_gather(everyone, torch.zeros(1), group=group)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def deadlock() -> None:
    """Two threads, two locks, each holding what the other wants."""
    first, second = threading.Lock(), threading.Lock()
    both_hold_one = threading.Barrier(2)

    def other() -> None:
        with second:
            both_hold_one.wait()
            with first:
                pass

    threading.Thread(target=other, daemon=True).start()
    with first:
        both_hold_one.wait()
        with second:
            pass


def hold_the_gil() -> None:
    """C code that waits for a lock which it holds itself, and never lets go of the interpreter."""
    mutex = ctypes.create_string_buffer(64)
    library = ctypes.PyDLL(None)
    library.pthread_mutex_lock(mutex)
    library.pthread_mutex_lock(mutex)


def sleep_in_c() -> None:
    """C code that lets go of the interpreter, and sleeps."""
    ctypes.CDLL(None).sleep(FOR_EVER_S)


def loop() -> None:
    number = 0
    while True:
        number = (number * 3 + 1) % 1_000_003


def read_for_ever() -> None:
    """Read from what looks like a file and never answers, as a file system that hangs does."""
    path = f"{os.environ['HANG_DIRECTORY']}/fifo-{os.getpid()}"
    os.mkfifo(path)
    with open(path, "r+b", buffering=0) as file:
        file.read(1)


def wait_in_a_hook() -> None:
    """An optimizer's hook of the user's own that waits for an event which nobody sets."""
    threading.Event().wait()


KINDS = (
    Kind("stopped", FORWARD, stop_itself),
    Kind("stopped-in-collective", COLLECTIVE, stop_inside),
    Kind("stopped-loader-worker", LOADER, stop_itself),
    Kind("dead-loader-worker", FEEDER, die),
    Kind("deadlock", FORWARD, deadlock),
    Kind("gil-held", FORWARD, hold_the_gil),
    Kind("sleep-in-c", FORWARD, sleep_in_c),
    Kind("endless-loop", FORWARD, loop, is_provable=False),
    Kind("hanging-read", DATA, read_for_ever, is_provable=False),
    Kind("skipped-collective", COLLECTIVE, skip),
    Kind("mismatched-collective", COLLECTIVE, call_another),
    Kind("waiting-hook", OPTIMIZER, wait_in_a_hook),
)

BY_NAME = {kind.name: kind for kind in KINDS}
