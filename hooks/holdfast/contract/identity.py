"""Who a process is: its pid alone is reused, so identity is (pid, start time)."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ProcessIdentity:
    """A process, told apart from a later one that got the same pid."""

    pid: int
    start_ticks: int

    def __str__(self) -> str:
        return f"{self.pid}:{self.start_ticks}"


def parse_identity(text: str) -> ProcessIdentity | None:
    """Parse `pid:start_ticks`; None when it is not one."""
    pid, _, ticks = text.partition(":")
    if pid.isdecimal() and ticks.isdecimal():
        return ProcessIdentity(int(pid), int(ticks))
    return None


_ENDING_FLAGS = 0x4 | 0x400
"""PF_EXITING and PF_SIGNALED (include/linux/sched.h): it leaves, or a fatal signal was taken, the
core dump before the leaving included. Neither is ever taken back, and exec sets neither."""

_PENDING_KILL = 1 << (signal.SIGKILL - 1)


@dataclass(frozen=True)
class ProcessStatus:
    """The fields of /proc/PID/stat that Holdfast judges by. CPU time is in clock ticks.

    Of a thread (/proc/PID/task/TID/stat) the same, for itself.
    """

    state: str
    parent_pid: int
    session: int
    cpu_ticks: int
    start_ticks: int
    is_ending: bool = False
    """The thread ends and nothing keeps it from it; a process does when all of its threads do."""
    is_killed: bool = False
    """A SIGKILL waits for the thread."""
    wait_status: int = 0
    """How the process ends, as for wait(2), once it does; 0 where that may not be read."""
    major_faults: int = 0
    """Pages that had to be read from storage before it could go on, all threads together."""


def parse_stat(text: str) -> ProcessStatus:
    """Parse /proc/PID/stat; the command in parentheses may itself hold parentheses (proc(5))."""
    fields = text[text.rindex(")") + 2 :].split()
    return ProcessStatus(
        state=fields[0],
        parent_pid=int(fields[1]),
        session=int(fields[3]),
        cpu_ticks=int(fields[11]) + int(fields[12]),
        start_ticks=int(fields[19]),
        is_ending=bool(int(fields[6]) & _ENDING_FLAGS),
        is_killed=bool(int(fields[28]) & _PENDING_KILL),
        wait_status=int(fields[49]) if len(fields) > 49 else 0,
        major_faults=int(fields[9]),
    )


def read_status(pid: int, proc: Path = Path("/proc")) -> ProcessStatus | None:
    """Read a process's status; None when there is no such process (any more)."""
    try:
        return parse_stat((proc / str(pid) / "stat").read_text(errors="replace"))
    except (FileNotFoundError, ProcessLookupError):
        return None


def read_identity(pid: int | None = None) -> ProcessIdentity | None:
    """Identity of a process (this one by default); None when it does not exist."""
    pid = os.getpid() if pid is None else pid
    status = read_status(pid)
    return None if status is None else ProcessIdentity(pid, status.start_ticks)


def is_alive(identity: ProcessIdentity) -> bool:
    """Whether this very process still exists and is not a zombie."""
    status = read_status(identity.pid)
    return (
        status is not None
        and status.start_ticks == identity.start_ticks
        and status.state not in ("Z", "X")
    )
