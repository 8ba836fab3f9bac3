"""Warm interpreters, one per local rank, so that a restart need not import torch again.

Importing torch is nearly all of a restart's time. Started when `backing` finds it time, at low
priority until used; whatever does not fit exactly is started cold.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from holdfast import environment as names
from holdfast.ending_processes import signal_child
from holdfast.own_directory import make_closed
from holdfast.owned import owned_file
from holdfast.permit import own_child
from holdfast.removing import unlink
from holdfast_sidecar.launcher import handover
from holdfast_sidecar.launcher.rank_process import Command, Process, start_cold
from holdfast_sidecar.linux.process import die_with
from holdfast_sidecar.records.formatting import how_it_ended

logger = logging.getLogger(__name__)

PROGRAM = Path(__file__).with_name("warm_interpreter.py")

LOW_PRIORITY = 5
"""A third of a rank's share where they compete for a core: at the lowest, importing torch would not
be over for minutes beside ranks that use every core, and a restart in the meantime be slow."""


@dataclass
class Warm:
    """An interpreter that waits."""

    process: subprocess.Popen[bytes]
    channel: socket.socket
    environment: Mapping[str, str]
    arguments: tuple[str, ...]
    errors: Path | None
    """What it wrote to stderr before it was used; worth keeping only when it failed."""

    def discard(self) -> None:
        """End it."""
        code = self.process.poll()
        self.channel.close()
        signal_child(own_child(self.process))
        self.process.wait()
        if code is None:
            self.forget_errors()
        else:
            logger.warning("a warm interpreter %s: see %s", how_it_ended(code), self.errors)

    def forget_errors(self) -> None:
        """It went well so far: from now on its errors are the rank's own."""
        if self.errors is None:
            return
        with contextlib.suppress(OSError):  # of a disk that has turned read-only
            unlink(owned_file(self.errors), missing_ok=True)


class Standby:
    """Obtains ranks' processes: warm where one waits that fits, else cold.

    All calls come from the launcher's main thread: the kernel ends these processes with it.
    """

    def __init__(self) -> None:
        self._warm: list[Warm] = []
        self._commands: dict[int, Command] = {}

    def start(self, command: Command) -> Process:
        """Start one rank."""
        self._commands[command.local_rank] = command
        while self._warm:
            warm = self._warm.pop()
            if self._hand_over(warm, command):
                logger.debug("local rank %d starts warm", command.local_rank)
                return warm.process
            warm.discard()
        logger.debug("local rank %d starts cold", command.local_rank)
        return start_cold(command)

    def expect(self, commands: Sequence[Command]) -> None:
        """Ranks that may have to be started, by a node that has started none yet."""
        self._commands = {command.local_rank: command for command in commands}

    def warm_up(self, modules: tuple[str, ...] = ("torch",)) -> None:
        """Let as many interpreters wait as there are ranks that could use one."""
        commands = [c for c in self._commands.values() if _can_be_warm(c)]
        for dead in [warm for warm in self._warm if warm.process.poll() is not None]:
            self._warm.remove(dead)
            dead.discard()
        try:
            for command in commands[len(self._warm) :]:
                self._warm.append(_start_warm(command, modules))
        except OSError as error:  # no process, memory or descriptor is left
            logger.info(
                "a warm interpreter can't be started, so a rank would start cold: %s", error
            )

    @property
    def waiting(self) -> int:
        """How many interpreters wait."""
        return len(self._warm)

    def close(self) -> None:
        """End those that wait."""
        while self._warm:
            self._warm.pop().discard()

    def _hand_over(self, warm: Warm, command: Command) -> bool:
        if not handover.is_ready(warm.channel):
            return False
        priority = os.getpriority(os.PRIO_PROCESS, 0)
        given = handover.make_handover(
            warm.environment, command.environment, str(Path.cwd()), priority
        )
        if given is None or tuple(command.arguments) != warm.arguments:
            return False
        streams = [
            number if stream is None else stream.fileno()
            for number, stream in ((1, command.stdout), (2, command.stderr))
        ]
        try:
            handover.send(warm.channel, given, streams)
        except OSError:
            return False
        warm.channel.close()
        warm.forget_errors()
        # It shall not have to wait for a core until it has read its own priority.
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, warm.process.pid, priority)
        return True


def _can_be_warm(command: Command) -> bool:
    return handover.can_be_warm(command.arguments, sys.executable)


def _start_warm(command: Command, modules: tuple[str, ...]) -> Warm:
    ours, theirs = socket.socketpair()
    environment = handover.early_part(command.environment)
    arguments = tuple(command.arguments)
    errors = _errors_of(command)
    with theirs, (errors or Path(os.devnull)).open("wb") as stderr:
        process = subprocess.Popen(
            [
                sys.executable,
                "-u",
                PROGRAM,
                str(theirs.fileno()),
                ",".join(modules),
                *arguments[2:],
            ],
            env=environment,
            pass_fds=[theirs.fileno()],
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            start_new_session=True,
            preexec_fn=partial(_prepare, os.getpid(), _may_restore_priority()),
        )
    return Warm(process, ours, environment, arguments, errors)


def _errors_of(command: Command) -> Path | None:
    directory = command.environment.get(names.EVIDENCE_DIR)
    if not directory:
        return None
    path = Path(directory) / f"warm-interpreter-{command.local_rank}.stderr"
    try:
        make_closed(path.parent)
        path.touch()
    except OSError:  # a full disk: what they say is lost then
        return None
    return path


def _prepare(parent_pid: int, at_low_priority: bool) -> None:
    die_with(parent_pid)
    if at_low_priority:
        os.nice(LOW_PRIORITY)


@cache
def _may_restore_priority() -> bool:
    """Anybody may lower a priority; to raise it again takes CAP_SYS_NICE where the machine itself
    grants it, or RLIMIT_NICE. Tried by a thread, since only that says what a container allows."""
    with ThreadPoolExecutor(1) as pool, contextlib.suppress(OSError, RuntimeError):
        pool.submit(_lower_and_raise).result()
        return True
    return False


def _lower_and_raise() -> None:
    thread = threading.get_native_id()
    before = os.getpriority(os.PRIO_PROCESS, thread)
    os.setpriority(os.PRIO_PROCESS, thread, before + 1)
    os.setpriority(os.PRIO_PROCESS, thread, before)
