"""How a rank's process is started: in a session of its own, and never outliving the launcher."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from types import FrameType
from typing import IO, Any, Protocol

from torch.distributed.elastic.multiprocessing import api as processes
from torch.distributed.elastic.multiprocessing.subprocess_handler import SubprocessHandler

from holdfast_sidecar.config.settings import BadInput
from holdfast_sidecar.linux.process import die_with


@dataclass(frozen=True)
class Command:
    """What to start. Streams: None inherits the launcher's."""

    arguments: Sequence[str]
    environment: Mapping[str, str]
    stdout: IO[str] | None
    stderr: IO[str] | None
    local_rank: int


class Process(Protocol):
    """The part of subprocess.Popen by which torch and the agent handle a rank."""

    pid: int
    returncode: int | None

    def poll(self) -> int | None:
        """Exit code, reaping the process; None while it runs."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the exit code."""

    def send_signal(self, sig: int) -> None:
        """Signal the process."""


Start = Callable[[Command], Process]


def start_cold(command: Command) -> Process:
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
        def _popen(self, args: tuple[str, ...], env: dict[str, str]) -> Process:
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
