"""Several files or slots of a checkpoint at once, in a few threads that the first error stops.

Threads are enough: checksums, torch's archive writer and files let go of the interpreter lock.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TypeVar

R = TypeVar("R")

MOST_THREADS = 4
"""More would take from the ranks' memory bandwidth what storage seldom can use."""


def count_threads(jobs: int) -> int:
    """How many threads share so many jobs: half of the cores stay with the ranks."""
    return max(1, min(jobs, MOST_THREADS, len(os.sched_getaffinity(0)) // 2))


class WorkerThreads:
    """Runs jobs whose progress, in bytes, comes to `tell` from one thread at a time."""

    def __init__(self, tell: Callable[[int], object]) -> None:
        self._tell = tell
        self._lock = threading.Lock()
        self._is_stopped = False

    def advance(self, size: int) -> None:
        """A job moved so many bytes. Raises OSError once another has failed: nobody needs this one
        any more."""
        with self._lock:
            if self._is_stopped:
                raise OSError(errno.ECANCELED, "what it was a part of has failed")
            self._tell(size)

    def run(self, jobs: Sequence[Callable[[], R]]) -> list[R]:
        """What they answer, in their order; or the first error, once all have ended."""
        # A thread is as nice as the one that starts it, so these give way if that one does.
        with ThreadPoolExecutor(count_threads(len(jobs)), "worker") as pool:
            under_way = [pool.submit(job) for job in jobs]
            try:
                for ended in as_completed(under_way):
                    ended.result()
            except BaseException:
                with self._lock:
                    self._is_stopped = True
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        return [each.result() for each in under_way]
