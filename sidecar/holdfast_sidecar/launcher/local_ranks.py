"""The ranks' processes of one attempt, as torch started them: subprocesses, or functions.

The only place that knows what torch keeps about them.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import stat
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torch.distributed.elastic.multiprocessing import SubprocessContext
from torch.distributed.elastic.multiprocessing.api import MultiprocessContext

from holdfast.identity import read_status
from holdfast_sidecar.launcher.ending import end_holding, end_ranks
from holdfast_sidecar.launcher.rank_ends import read_exit_code

SYS_STREAM = ""
"""The file that torch names for a stream that it redirects nowhere."""


class LocalRanks:
    """Wraps torch's context of processes; None before the first start: no ranks."""

    def __init__(self, context: Any = None) -> None:
        self._context = context

    @property
    def pids(self) -> dict[int, int]:
        """Local rank -> pid."""
        return {} if self._context is None else dict(self._context.pids())

    @property
    def error_files(self) -> Mapping[int, str]:
        """Local rank -> the file that torch's error handler writes."""
        files: Mapping[int, str] = self._context.error_files
        return files

    def read_unread(self) -> set[int]:
        """Local ranks that print where this process does, into a pipe that has lost its reader."""
        streams = ((1, self._context.stdouts), (2, self._context.stderrs))
        lost = [files for descriptor, files in streams if _is_unread(descriptor)]
        return {rank for files in lost for rank, file in files.items() if file == SYS_STREAM}

    def read_exit_codes(self) -> dict[int, int]:
        """Local rank -> exit code, of those that have ended."""
        self._let_functions_return()
        codes = {rank: self._read_exit_code(rank, pid) for rank, pid in self.pids.items()}
        return {rank: code for rank, code in codes.items() if code is not None}

    def read_dying(self) -> set[int]:
        """Local ranks that end, or have ended, of which nobody may be able to say yet how."""
        statuses = {rank: read_status(pid) for rank, pid in self.pids.items()}
        return {
            rank
            for rank, status in statuses.items()
            if status is not None and (status.is_ending or status.is_killed or status.state == "Z")
        }

    @property
    def hears_ends(self) -> bool:
        """Whether `wait` returns at each end: a function's comes only once its value was taken."""
        return not isinstance(self._context, MultiprocessContext)

    def wait(self, local_ranks: Iterable[int], news_fd: int, timeout_s: float) -> None:
        """Sleep until one of these ranks ends, there is news, or the time is over."""
        pids = self.pids
        poller = select.poll()
        poller.register(news_fd, select.POLLIN)
        with contextlib.ExitStack() as handles:
            for local_rank in local_ranks:
                with contextlib.suppress(ProcessLookupError):
                    handle = os.pidfd_open(pids[local_rank])
                    handles.callback(os.close, handle)
                    poller.register(handle, select.POLLIN)
            poller.poll(timeout_s * 1000)

    def end(
        self,
        first: signal.Signals,
        grace_s: float,
        holding: Sequence[int] = (),
        is_asked: bool = False,
    ) -> None:
        """End subprocesses all at once. Functions are left to torch, which has their handles.

        `holding`: pids of those that hold SIGTERM. `is_asked`: by a signal to this launcher.
        """
        if not isinstance(self._context, SubprocessContext):
            end_holding(holding, first)
            return
        end_ranks(self.pids.values(), first, grace_s, holding, is_asked)
        for handler in self._context.subprocess_handlers.values():
            handler.proc.poll()
            # torch closes the log files only of ranks that it ends itself.
            for stream in (handler._stdout, handler._stderr):
                if stream is not None:
                    stream.close()

    def _read_exit_code(self, local_rank: int, pid: int) -> int | None:
        if isinstance(self._context, MultiprocessContext):
            # It may be the child of a fork server, so only torch's handle on it can tell.
            code: int | None = self._context._pc.processes[local_rank].exitcode
            return code
        reaped: int | None = self._context.subprocess_handlers[local_rank].proc.returncode
        return read_exit_code(pid) if reaped is None else reaped

    def _let_functions_return(self) -> None:
        """Ranks of --run-path wait for their return values to be taken before they exit."""
        context = self._context
        if not isinstance(context, MultiprocessContext):
            return
        for local_rank, queue in context._ret_vals.items():
            if local_rank not in context._return_values and not queue.empty():
                context._return_values[local_rank] = queue.get()
        if context._is_done():
            context._worker_finished_event.set()


def _is_unread(descriptor: int) -> bool:
    try:
        mode = os.fstat(descriptor).st_mode
    except OSError:
        return False
    # A terminal that hung up reports an error here too, and none of a pipe when it is written to.
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
        return False
    poll = select.poll()
    poll.register(descriptor, 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))
