"""How a rank's process is started: in a session of its own, and never outliving the launcher."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import multiprocessing
import os
import select
import signal
import stat
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from types import FrameType
from typing import IO, Any, Protocol

from torch.distributed.elastic.multiprocessing import SubprocessContext
from torch.distributed.elastic.multiprocessing import api as processes
from torch.distributed.elastic.multiprocessing.api import MultiprocessContext
from torch.distributed.elastic.multiprocessing.subprocess_handler import SubprocessHandler
from torch.distributed.run import run_script_path

from holdfast.contract import environment as names
from holdfast.contract.identity import read_status
from holdfast.rank import attachment
from holdfast_sidecar.config.paths import Paths
from holdfast_sidecar.config.settings import BadInput, CheckpointSettings, SnapshotSettings
from holdfast_sidecar.launcher.rank_state import read_exit_code
from holdfast_sidecar.launcher.shutdown import end_holding, end_ranks
from holdfast_sidecar.linux.process import die_with
from holdfast_sidecar.records.plan import BatchSkip, Candidate


@dataclass(frozen=True)
class Command:
    """What to start. Streams: None inherits the launcher's."""

    arguments: Sequence[str]
    environment: Mapping[str, str]
    stdout: IO[str] | None
    stderr: IO[str] | None
    local_rank: int


class RankProcess(Protocol):
    """The part of subprocess.Popen by which torch and the agent handle a rank."""

    pid: int
    returncode: int | None

    def poll(self) -> int | None:
        """Exit code, reaping the process; None while it runs."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the exit code."""

    def send_signal(self, sig: int) -> None:
        """Signal the process."""


Start = Callable[[Command], RankProcess]


def start_cold(command: Command) -> RankProcess:
    """Start a new process. Must be called by a thread that lives as long as the launcher:
    the parent-death signal follows the thread that forked.
    """
    return subprocess.Popen(
        command.arguments,
        env=dict(command.environment),
        stdout=command.stdout,
        stderr=command.stderr,
        start_new_session=True,
        preexec_fn=partial(die_with, os.getpid()),
    )


@contextlib.contextmanager
def signals_handled_by(handle: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Within this, torch's start_processes installs `handle` in place of its own handler.

    Starting forks, and what a handler raises in the hooks of a fork is swallowed by Python: a
    signal that only raises is lost then, one that is remembered is not.
    """
    stock = processes._terminate_process_handler
    processes._terminate_process_handler = handle
    try:
        yield
    finally:
        processes._terminate_process_handler = stock


@contextlib.contextmanager
def ranks_started_by(
    start: Start,
    environment: Callable[[Mapping[str, str]], dict[str, str]],
    are_subprocesses: bool = True,
) -> Iterator[None]:
    """Within this, torch's start_processes obtains the ranks' processes from `start`.

    `environment` turns the environment torch made for a rank into the one it gets. Raises BadInput
    when torch has obtained none from there: its ranks would run without hooks, in the launcher's
    session, and might outlive it.
    """
    handlers: list[SubprocessHandler] = []

    class Handler(SubprocessHandler):  # type: ignore[misc]
        def _popen(self, args: tuple[str, ...], env: dict[str, str]) -> RankProcess:
            command = Command(
                args, environment(env), self._stdout, self._stderr, self.local_rank_id
            )
            return start(command)

    def make(*args: Any, **named: Any) -> SubprocessHandler:
        handlers.append(Handler(*args, **named))
        return handlers[-1]

    stock = processes.get_subprocess_handler
    processes.get_subprocess_handler = make
    try:
        yield
    finally:
        processes.get_subprocess_handler = stock
    if are_subprocesses and not handlers:
        raise BadInput(
            f"PyTorch {metadata.version('torch')} starts ranks in a way that is not known here: "
            "see docs/matrix.md for the versions that it works with"
        )


# What a rank finds in its environment beside torchrun's own variables: pure.

SHARED_STORE_OFF = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"


@dataclass(frozen=True)
class RankContext:
    """The attempt a rank is started for."""

    job: str
    node: str
    attempt: int
    epoch: int
    places: Paths
    hooks_path: str
    """Directory whose sitecustomize attaches the hooks."""
    checkpoint_dir: str = ""
    checkpoint_key_file: str = ""
    checkpoint_write_timeout_s: float = CheckpointSettings.write_timeout_s
    resume: tuple[Candidate, ...] = ()
    skips: tuple[BatchSkip, ...] = ()
    takes_snapshots: bool = True
    flight_recorder: bool = True
    """Setting `stall.flight_recorder`."""
    holds_termination: bool = False
    """Whether ranks may survive SIGTERM: they are ended by another signal."""
    peer_copies: str = SnapshotSettings.peer
    """Setting `snapshot.peer`; `off` in an attempt that no other node takes part in."""
    peer_timeout_s: float = SnapshotSettings.peer_timeout_s


def rank_environment(environment: Mapping[str, str], context: RankContext) -> dict[str, str]:
    """The environment torch made, with ours added and what is no business of a rank removed."""
    hidden = {*names.NEVER_FOR_RANKS, names.CLAIMED, names.ATTACH}
    clean = {name: value for name, value in environment.items() if name not in hidden}
    clean.setdefault(SHARED_STORE_OFF, "1")
    return clean | holdfast_environment(context, environment.get("PYTHONPATH", ""))


def holdfast_environment(context: RankContext, python_path: str) -> dict[str, str]:
    """The variables of ours alone. `python_path` is the PYTHONPATH there was."""
    # An empty entry means the current directory, so none may be added.
    entries = [entry for entry in python_path.split(":") if entry != context.hooks_path]
    kept = ":".join(entries)
    ours = {
        names.JOB: context.job,
        names.NODE: context.node,
        names.ATTEMPT: str(context.attempt),
        names.EPOCH: str(context.epoch),
        names.PAGE_DIR: str(context.places.shm),
        names.EVIDENCE_DIR: str(context.places.evidence(context.attempt)),
        names.SNAPSHOTS: "1" if context.takes_snapshots else "0",
        names.FLIGHT_RECORDER: "1" if context.flight_recorder else "0",
        names.PEER_COPIES: context.peer_copies,
        names.PEER_TIMEOUT: f"{context.peer_timeout_s:g}",
        names.RESUME: json.dumps([dataclasses.asdict(c) for c in context.resume]),
        "PYTHONPATH": f"{context.hooks_path}:{kept}" if kept else context.hooks_path,
    }
    if context.skips:
        ours[names.SKIPS] = json.dumps([dataclasses.asdict(skip) for skip in context.skips])
    if context.holds_termination:
        ours[names.HOLDS_TERMINATION] = "1"
    if context.checkpoint_dir:
        ours[names.CHECKPOINT_DIR] = context.checkpoint_dir
        ours[names.CHECKPOINT_WRITE_TIMEOUT] = f"{context.checkpoint_write_timeout_s:g}"
    if context.checkpoint_key_file:
        ours[names.CHECKPOINT_KEY_FILE] = context.checkpoint_key_file
    return ours


# The ranks' processes of one attempt, as torch started them: subprocesses, or functions.
#
# The only place that knows what torch keeps about them.

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


# The environment that children of this process inherit, for a while.


@contextlib.contextmanager
def inherited(environment: Mapping[str, str]) -> Iterator[None]:
    """Within this, the process's environment is this one."""
    before = dict(os.environ)
    try:
        _replace(environment)
        yield
    finally:
        _replace(before)


def _replace(environment: Mapping[str, str]) -> None:
    for name in os.environ.keys() - environment.keys():
        del os.environ[name]
    os.environ.update(environment)


# A rank of --run-path: torch calls this function in a process that torch itself started.


def run_path(script: str, *arguments: str) -> Any:
    """Run the script in this interpreter, attached and bound to the launcher's life."""
    launcher = multiprocessing.parent_process()
    die_with(os.getppid())
    # To get here took seconds of importing: a launcher that died meanwhile left us to another.
    if launcher is not None and not launcher.is_alive():
        os._exit(1)
    attachment.arm()
    return run_script_path(script, *arguments)
