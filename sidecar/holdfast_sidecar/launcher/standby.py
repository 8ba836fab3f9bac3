"""Warm interpreters, one per local rank, so that a restart need not import torch again.

Importing torch is nearly all of a restart's time. Started when `backing` finds it time, at low
priority until used; whatever does not fit exactly is started cold.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from torch.distributed.elastic.utils import macros

from holdfast.contract import environment as names
from holdfast.contract.ending_processes import signal_child
from holdfast.contract.own_directory import make_closed
from holdfast.contract.owned import owned_file
from holdfast.contract.page import Flag
from holdfast.contract.permit import own_child
from holdfast.contract.removing import unlink
from holdfast_sidecar.components.host.cpu import parse_idle_s, read_cpu_limit
from holdfast_sidecar.launcher import handover
from holdfast_sidecar.launcher.plan_watch import PlanWatch
from holdfast_sidecar.launcher.rank_process import (
    Command,
    RankContext,
    RankProcess,
    rank_environment,
    start_cold,
)
from holdfast_sidecar.launcher.rank_state import has_flag, has_stepped, read_words
from holdfast_sidecar.linux.files import read_if_any
from holdfast_sidecar.linux.process import die_with
from holdfast_sidecar.records.formatting import how_it_ended
from holdfast_sidecar.records.plan import Plan
from holdfast_sidecar.records.reports import AgentReport

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

    def start(self, command: Command) -> RankProcess:
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


# When warm interpreters are started for the next attempt, and what they import: once per attempt.
#
# Not before every rank has stepped: until then they would compete with the ranks' own start. And
# not at the ranks' expense: importing torch takes seconds of a core, which a short job on busy
# cores would feel as seconds more. They start once cores have nothing else to do, else once the
# ranks have stepped for so long that it is a small share of that time.

LOOK_EVERY_S = 0.5
"""At the ranks' pages until all have stepped, and then whether it is time."""

IDLE_OVER_S = 0.5
"""So long cores are watched for what they have left: many steps, or a pause in long ones."""

WATCHED_SHARE = 0.1
"""Of the time since the ranks step, where that is more: cores that were never idle are read less
and less often, as each reading takes a core from a rank for a millisecond."""

IDLE_CORES_EACH = 0.75
"""So that an interpreter hardly ever takes a core that a rank wants: ranks that wait for half of
each step leave half of each core idle, but by turns."""

IMPORT_CPU_S = 3.0
"""Of one core, for one interpreter with torch and what DDP and AdamW import of it."""

LARGEST_SHARE = 0.02
"""Of the time since the ranks step, on as many cores as interpreters start: where work is shared
out over more of them, all wait for the one that is slowed."""


@dataclass(frozen=True)
class Cores:
    """What this node may use."""

    numbers: frozenset[int]
    quota: float
    """At most so many at once."""
    idle_s: float | None
    """CPU seconds since boot in which they had nothing to run; None: it is not told, or there is a
    quota, and what is idle beyond it is for others."""

    @property
    def count(self) -> float:
        """Cores' worth."""
        return min(self.quota, len(self.numbers))


def read_cores(proc: Path = Path("/proc")) -> Cores:
    """Of this process, and so of the ranks."""
    numbers = frozenset(os.sched_getaffinity(0))
    quota = read_cpu_limit(proc, "self")
    if quota is not None and quota < len(numbers):
        return Cores(numbers, quota, None)
    return Cores(numbers, math.inf, parse_idle_s(read_if_any(f"{proc}/stat"), numbers))


class Backing:
    """Watches over one attempt's first steps."""

    def __init__(
        self,
        standby: Standby,
        pages: Sequence[Path],
        tell: Callable[[tuple[str, ...]], None] = lambda modules: None,
        cores: Callable[[], Cores] = read_cores,
    ) -> None:
        self._standby = standby
        self._pages = pages
        self._tell = tell
        self._cores = cores
        self._looked_at = float("-inf")
        self._modules: tuple[str, ...] = ()
        self._stepping_since = 0.0
        self._seen = 0.0, Cores(frozenset(), 0.0, None)
        self._is_settled = False

    def look(self, now: float) -> None:
        """Start the interpreters if it is time. `now` is monotonic seconds."""
        if self._is_settled or now - self._looked_at < LOOK_EVERY_S:
            return
        self._looked_at = now
        if not self._modules:
            self._await_steps(now)
        elif self._is_time(now):
            self._is_settled = True
            self._standby.warm_up(self._modules)

    def _await_steps(self, now: float) -> None:
        words = [read_words(page) for page in self._pages]
        stepped = [found for found in words if found is not None and has_stepped(found)]
        if len(stepped) < len(self._pages):
            return
        self._modules, self._stepping_since = modules_to_warm(stepped), now
        self._seen = now, self._cores()
        self._is_settled = not self._modules
        self._tell(self._modules)

    def _is_time(self, now: float) -> bool:
        since, cores = self._seen
        stepping_s, idle_cores = now - self._stepping_since, 0.0
        if now - since >= max(IDLE_OVER_S, WATCHED_SHARE * stepping_s):
            before, cores = cores, self._cores()
            self._seen = now, cores
            idle_cores = _idle_s(before, cores) / (now - since)
        return is_affordable(len(self._pages), idle_cores, cores.count, stepping_s)


def _idle_s(before: Cores, after: Cores) -> float:
    """CPU seconds between these looks in which there was nothing to run; 0 where that is not known,
    as of cores that were not this node's before."""
    if before.numbers != after.numbers or before.idle_s is None or after.idle_s is None:
        return 0.0
    return after.idle_s - before.idle_s


def is_affordable(interpreters: int, idle_cores: float, cores: float, stepping_s: float) -> bool:
    """Whether so many can be started at nobody's expense, or at little."""
    if idle_cores >= IDLE_CORES_EACH * interpreters:
        return True
    used = min(cores, interpreters)
    return IMPORT_CPU_S * interpreters <= LARGEST_SHARE * used * stepping_s


def modules_to_warm(words: Sequence[tuple[int, ...]]) -> tuple[str, ...]:
    """What these ranks had imported and is slow to import; empty when they must start cold."""
    if any(has_flag(found, Flag.NEEDS_COLD_START) for found in words):
        return ()
    # DDP and AdamW import it on first use: another second of CPU time beside torch's own.
    uses_dynamo = any(has_flag(found, Flag.DYNAMO_IMPORTED) for found in words)
    return ("torch", "torch._dynamo") if uses_dynamo else ("torch",)


# A spare's warm interpreters: it has nothing else to do, so they wait from the job's first steps
# on, and it is not slower than the survivors when it takes a lost node's place.

LATE_SHARE = 0.25
"""Of the time that an attempt has taken to its first steps, the interpreters may start later."""

LONGEST_S = 30.0
"""Between two looks at what all agents report, where no rank comes to a step."""

NCCL_ERRORS = "TORCH_NCCL_ASYNC_ERROR_HANDLING"


class Spare:
    """Starts the interpreters once those who run the job know what they should import."""

    def __init__(
        self,
        standby: Standby,
        watch: PlanWatch,
        spec: Any,
        context: RankContext,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._standby = standby
        self._watch = watch
        self._spec = spec
        self._context = context
        self._clock = clock
        self._attempt = -1
        self._since_s = 0.0
        self._due_s = 0.0

    def look(self, plan: Plan) -> None:
        """Called now and then while this node waits beside a live attempt."""
        if self._standby.waiting or not isinstance(self._spec.entrypoint, str):
            return
        if not self._is_due(plan, self._clock()):
            return
        if modules := modules_of(self._watch.read_agents(), plan):
            self._standby.expect(expected_commands(self._spec, self._context, os.environ))
            self._standby.warm_up(modules)

    def _is_due(self, plan: Plan, now_s: float) -> bool:
        """Whether to read what all agents say. Those that took minutes to come so far are in no
        haste, and there may be a thousand of them."""
        if plan.attempt != self._attempt:
            self._attempt, self._since_s, self._due_s = plan.attempt, now_s, now_s
        if now_s < self._due_s:
            return False
        self._due_s = now_s + min(LONGEST_S, LATE_SHARE * (now_s - self._since_s))
        return True


def modules_of(agents: Iterable[AgentReport], plan: Plan) -> tuple[str, ...]:
    """What the ranks of the running attempt had imported; empty while nobody can tell."""
    told = (a.warm_modules for a in agents if a.state == "running" and a.attempt == plan.attempt)
    return tuple(next(filter(None, told), ()))


def expected_commands(
    spec: Any, context: RankContext, environment: Mapping[str, str]
) -> list[Command]:
    """This node's ranks as torch will start them, as far as is known without a place.

    What torch adds to the environment names the rank and is handed over late, but for one variable.
    If a version of torch adds another, the interpreter will not fit and the rank starts cold.
    """
    made = {NCCL_ERRORS: "1", **environment}
    return [
        Command(
            (spec.entrypoint, *macros.substitute(list(spec.args), str(local_rank))),
            rank_environment(made, context),
            None,
            None,
            local_rank,
        )
        for local_rank in range(spec.local_world_size)
    ]
