"""Python's resource trackers among a rank's processes: they remove what the others leave behind.

A tracker unlinks the semaphores and shared memory of multiprocessing once its last client is
gone, and then ends by itself. Killed together with its clients it can't, and they stay in
/dev/shm for ever.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path

from holdfast.identity import read_status

PATIENCE_S = 1.0
"""A tracker whose clients are gone is done within milliseconds; on a busy machine in tens."""

LOOK_S = 0.005

MARK = b"multiprocessing.resource_tracker"


def is_tracker(pid: int, proc: Path = Path("/proc")) -> bool:
    """Whether this process is a resource tracker."""
    try:
        return MARK in (proc / str(pid) / "cmdline").read_bytes()
    except OSError:
        return False


def sessions_of(leaders: Iterable[int], proc: Path = Path("/proc")) -> list[int]:
    """Living processes of the sessions that these processes lead or led."""
    wanted = set(leaders)
    pids = [int(name) for name in os.listdir(proc) if name.isdecimal()]  # noqa: PTH208
    statuses = ((pid, read_status(pid, proc)) for pid in pids)
    return [
        pid
        for pid, status in statuses
        if status is not None and status.session in wanted and status.state not in ("Z", "X")
    ]


def wait_for_trackers(pids: Iterable[int], patience_s: float = PATIENCE_S) -> None:
    """Wait until these trackers have ended; not longer than the patience."""
    until = time.monotonic() + patience_s
    waiting = list(pids)
    while waiting and time.monotonic() < until:
        time.sleep(LOOK_S)
        waiting = [pid for pid in waiting if is_tracker(pid)]
