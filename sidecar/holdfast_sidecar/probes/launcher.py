"""Watches the launcher of this node: the very process, not whoever has its pid later."""

from __future__ import annotations

import os
import select
from dataclasses import dataclass

from holdfast.identity import read_identity


@dataclass(frozen=True)
class LauncherWatch:
    """A launcher held by pidfd; `pidfd` None: there is none to watch, or it is gone already."""

    pid: int
    pidfd: int | None

    def is_alive(self) -> bool:
        """Whether it still runs. Without a launcher to watch (pid 0) none is missing."""
        if self.pid == 0:
            return True
        if self.pidfd is None:
            return False
        poll = select.poll()
        poll.register(self.pidfd, select.POLLIN)
        return not poll.poll(0)

    def close(self) -> None:
        """Let go of the handle."""
        if self.pidfd is not None:
            os.close(self.pidfd)


def watch_launcher(pid: int, start_ticks: int = 0) -> LauncherWatch:
    """Start watching a process (pid 0: none). With `start_ticks` it must be that very one."""
    if pid == 0:
        return LauncherWatch(0, None)
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return LauncherWatch(pid, None)
    identity = read_identity(pid)
    if identity is None or (start_ticks and identity.start_ticks != start_ticks):
        os.close(pidfd)
        return LauncherWatch(pid, None)
    return LauncherWatch(pid, pidfd)
