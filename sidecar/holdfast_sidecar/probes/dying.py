"""Whether a process ends, before the kernel has cleared it away, and how it ends.

The kernel says so of every thread from the moment at which nothing can keep it from ending; what
waits for processes (wait, pidfd, sockets) is told only after all their memory has been freed.
"""

from __future__ import annotations

import os

from holdfast.identity import ProcessStatus, parse_stat
from holdfast_sidecar.kernel_files import read_text


def read_is_dying(directory: str, status: ProcessStatus) -> bool:
    """Whether all threads of this process (/proc/PID) end; `status` is that of its first one.

    The first one alone does not tell: it may leave the others behind (pthread_exit), and goes when
    another one replaces the program (exec). That one then takes the first one's place, and is not
    found in its own any more, so the first place is looked at again in the end.
    """
    return status.is_ending and all(
        thread is None or thread.is_ending or thread.is_killed
        for thread in (*_read_threads(directory), _read_thread(f"{directory}/stat"))
    )


def is_back(status: ProcessStatus) -> bool:
    """Whether a process whose end was just told runs all the same: some kernels tell of the end of
    the first thread when another one replaces the program."""
    return not status.is_ending and status.state not in ("Z", "X")


def exit_code_of(wait_status: int) -> int:
    """As `os.waitstatus_to_exitcode`, of a process that is not yet waited for."""
    signal = wait_status & 0x7F
    return -signal if signal else wait_status >> 8 & 0xFF


def _read_threads(directory: str) -> list[ProcessStatus | None]:
    try:
        threads = os.listdir(f"{directory}/task")  # noqa: PTH208 - names are wanted, not paths
    except (FileNotFoundError, ProcessLookupError):
        return []
    others = (thread for thread in threads if thread != directory.rpartition("/")[2])
    return [_read_thread(f"{directory}/task/{thread}/stat") for thread in others]


def _read_thread(file: str) -> ProcessStatus | None:
    try:
        return parse_stat(read_text(file))
    except (FileNotFoundError, ProcessLookupError):
        return None
