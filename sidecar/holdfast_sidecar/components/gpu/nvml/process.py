"""One child process that asks NVML: starting it, and what comes through its pipe."""

from __future__ import annotations

import contextlib
import logging
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path

from holdfast.contract import environment
from holdfast.contract.ending_processes import signal_child
from holdfast.contract.permit import own_child
from holdfast_sidecar.components.gpu.nvml import wire
from holdfast_sidecar.components.gpu.nvml.child_io import LAYOUT, BadFrameError, FrameReader
from holdfast_sidecar.components.gpu.nvml.wire import Absent, BadMessageError, Failed, Message
from holdfast_sidecar.components.gpu.readings import Gpu, GpuReading, NvmlSilence
from holdfast_sidecar.linux.threads import start_thread
from holdfast_sidecar.records.formatting import how_it_ended

log = logging.getLogger(__name__)


# When a child that asks NVML is started, ended and given up. Pure: time is an argument.
#
# A child that hangs in the kernel can't be ended. It gets at most one replacement, and the driver
# is left alone for longer and longer.

START_S = 30.0
"""A child that has not answered yet is left alone this long: where nothing keeps the driver loaded
the first to come waits until it has set up every GPU, two or three seconds each."""

PAUSE_S = 1.0
"""Before the first replacement: a driver that was reloaded is back after about that."""

PAUSE_MOST_S = 300.0
"""Doubled up to here. Whatever hangs then needs a reset or a reboot, which takes minutes; and each
attempt may leave another process in the kernel."""

SOUND_S = 60.0
"""One that answered this long is no failure when it ends: the next one comes after a second."""

ABSENT_PAUSE_S = 60.0
"""Without a driver: somebody may load one. A look costs 40 ms of CPU."""

ALIVE_MOST = 2
"""Of a kind, the stuck ones included: more would only hang in the same lock."""

QUIET_S = 1.0
"""Since the first look that heard nothing. A sidecar that slept, and its child with it, hears
nothing at first; after this it would."""

STUCK_S = 5.0
"""A process that a SIGKILL has not ended by then hangs in the kernel. One that does not is gone
within a few milliseconds."""


class RestartStep(str, Enum):
    """What is to be done now."""

    NOTHING = "nothing"
    START = "start"
    END = "end"


@dataclass(frozen=True)
class RestartPolicy:
    """How one kind of child stands. Times are CLOCK_MONOTONIC seconds."""

    patience_s: float
    """Without a sign of life for longer than this, it is silent."""
    started_s: float | None = None
    """Of the child that is asked; None: there is none."""
    heard_s: float | None = None
    """The last sign of life of that one."""
    heard_first_s: float | None = None
    quiet_s: float | None = None
    """When it was first looked without hearing anything more of it."""
    due_s: float = float("-inf")
    """None is started before."""
    failures: int = 0
    """Children in a row that ended badly, or had to be ended."""
    stuck: int = 0
    """Ended, and not gone: they hang in the kernel."""
    silent_since_s: float | None = None
    """Since when the driver has not answered, by whatever child."""

    def looked(self, now_s: float, is_heard: bool) -> RestartPolicy:
        """The same, having looked: whoever has been silent for too long is so from here on."""
        if is_heard:
            return self._heard(now_s)
        quiet = self if self.quiet_s is not None else replace(self, quiet_s=now_s)
        if quiet.silent_since_s is None and quiet._is_silent(now_s):
            return replace(quiet, silent_since_s=quiet._last_sign_s)
        return quiet

    def deed(self, now_s: float) -> RestartStep:
        """What is to be done with the child, or the lack of one."""
        if self.started_s is None:
            may_start = now_s >= self.due_s and self.stuck < ALIVE_MOST
            return RestartStep.START if may_start else RestartStep.NOTHING
        is_starting = self.heard_s is None and now_s - self.started_s <= START_S
        return (
            RestartStep.END if self._is_silent(now_s) and not is_starting else RestartStep.NOTHING
        )

    def started(self, now_s: float) -> RestartPolicy:
        """One was started."""
        return replace(self, started_s=now_s, heard_first_s=None, heard_s=None, quiet_s=None)

    def ended(self, now_s: float, is_gone: bool) -> RestartPolicy:
        """It ended by itself. One that can't be waited for is stuck on its way out."""
        failures = 1 if self._was_sound(now_s) else self.failures + 1
        return self._left(failures, now_s + pause_s(failures), is_gone)

    def absent(self, now_s: float, is_gone: bool) -> RestartPolicy:
        """It ended since there is no driver, which is no failure."""
        return self._left(0, now_s + ABSENT_PAUSE_S, is_gone)

    def killed(self, now_s: float) -> RestartPolicy:
        """It got a SIGKILL; it is stuck until it is seen to be gone."""
        return self.ended(now_s, is_gone=False)

    def buried(self, now_s: float, killed_s: float) -> RestartPolicy:
        """One that was killed then is gone. Had it hung in the kernel, the driver lives again."""
        due_s = min(self.due_s, now_s) if now_s - killed_s >= STUCK_S else self.due_s
        return replace(self, stuck=self.stuck - 1, due_s=due_s)

    @property
    def _last_sign_s(self) -> float | None:
        return self.started_s if self.heard_s is None else self.heard_s

    def _heard(self, now_s: float) -> RestartPolicy:
        first_s = now_s if self.heard_first_s is None else self.heard_first_s
        heard = replace(self, heard_first_s=first_s, heard_s=now_s, quiet_s=None)
        return replace(heard, silent_since_s=None)

    def _left(self, failures: int, due_s: float, is_gone: bool) -> RestartPolicy:
        stuck = self.stuck + (not is_gone)
        return replace(self, started_s=None, failures=failures, due_s=due_s, stuck=stuck)

    def _is_silent(self, now_s: float) -> bool:
        if self.started_s is None or self._last_sign_s is None or self.quiet_s is None:
            return False
        return now_s - self._last_sign_s > self.patience_s and now_s - self.quiet_s >= QUIET_S

    def _was_sound(self, now_s: float) -> bool:
        return self.heard_first_s is not None and now_s - self.heard_first_s >= SOUND_S


def pause_s(failures: int) -> float:
    """Before the next child, after so many that failed in a row."""
    return min(PAUSE_S * 2.0 ** min(failures - 1, 30), PAUSE_MOST_S)


# Wakes the loop the moment a child says something.

REST_S = 0.02
"""After a wake: a storm of events wakes the loop fifty times a second, not a thousand times."""


class ChildWakeup:
    """A thread that sleeps until something is written to one of the pipes, and then calls `wake`.

    It reads nothing, and is told of each write once: whoever is woken reads all there is. A pipe is
    forgotten when it is closed.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._epoll: select.epoll | None = None

    def listen(self, pipe: int) -> None:
        """Wake for this one, too."""
        if self._epoll is None:
            epoll = select.epoll()
            if start_thread(self._watch, "nvml-alarm", (epoll,)) is None:
                epoll.close()
                return  # what this pipe says is read at the next tick
            self._epoll = epoll
        self._epoll.register(pipe, select.EPOLLIN | select.EPOLLET)

    def _watch(self, epoll: select.epoll) -> None:
        while True:
            with contextlib.suppress(InterruptedError):
                epoll.poll()
            self._wake()
            time.sleep(REST_S)


# The sidecar's end of a child's board, read whenever it likes: of a child that hangs or is gone,
# too.


@dataclass(frozen=True)
class ChildStatus:
    """What stood on the board."""

    beats: int = 0
    at_s: float = 0.0
    """CLOCK_MONOTONIC."""
    asking: str = ""
    """What the child was about to ask; empty: nothing."""


def make_board() -> int:
    """Descriptor of a new board: memory without a name, which goes with its last user."""
    descriptor = os.memfd_create("holdfast-nvml", os.MFD_CLOEXEC)
    os.ftruncate(descriptor, LAYOUT.size)
    return descriptor


def read_board(descriptor: int) -> ChildStatus:
    """What stands there. What is just being written may come out mixed: a text of two calls, or a
    count of two signs of life, which is one all the same."""
    content = os.pread(descriptor, LAYOUT.size, 0)
    if len(content) < LAYOUT.size:
        return ChildStatus()
    beats, at_s, text = LAYOUT.unpack(content)
    return ChildStatus(beats, at_s, text.rstrip(b"\0").decode(errors="replace"))


CHUNK_BYTES = 65536

MOST_CHUNKS = 32
"""In one look: no child says two MiB at once, and what is left is heard at the next."""

MAIN = Path(__file__).with_name("__main__.py")


def command(kind: str, every_s: float) -> tuple[str, ...]:
    """Starts a child; `start` adds its board, its parent and where modules are."""
    return (sys.executable, "-I", "-S", str(MAIN), kind, str(every_s))


@dataclass
class ChildProcess:
    """A process with its pipe and its board."""

    process: subprocess.Popen[bytes]
    board: int
    frames: FrameReader = field(default_factory=FrameReader)
    note: ChildStatus = field(default_factory=ChildStatus)
    """As of the newest look."""
    last: Message | None = None
    reading: GpuReading | None = None
    """The newest: the next one says what has changed of it."""
    closed_s: float | None = None
    """Since when nothing more is expected of it."""
    killed_s: float = 0.0

    @property
    def pipe(self) -> int:
        """Where its frames come out; reading does not wait."""
        assert self.process.stdout is not None
        return self.process.stdout.fileno()

    def read(self, now_s: float) -> bytes:
        """What is in the pipe by now."""
        chunks: list[bytes] = []
        with contextlib.suppress(BlockingIOError):
            while len(chunks) < MOST_CHUNKS:
                chunks.append(os.read(self.pipe, CHUNK_BYTES))
                if not chunks[-1]:
                    self.closed_s = now_s
                    break
        return b"".join(chunks)

    def close(self) -> None:
        """Let go of its pipe and its board."""
        assert self.process.stdout is not None
        self.process.stdout.close()
        os.close(self.board)


def start(command: Sequence[str], leads_session: bool) -> ChildProcess:
    """A new one; it dies with the thread that calls this. Raises OSError."""
    board = make_board()
    paths = os.pathsep.join(path or str(Path.cwd()) for path in sys.path)
    try:
        process = subprocess.Popen(
            (*command, str(board), str(os.getpid()), paths),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            pass_fds=(board,),
            cwd="/",
            env=_surroundings(),
            start_new_session=leads_session,
        )
    except OSError:
        os.close(board)
        raise
    child = ChildProcess(process, board)
    os.set_blocking(child.pipe, False)
    return child


def _surroundings() -> dict[str, str]:
    """As the sidecar's, for libraries may lie where it says; but no secrets."""
    return {k: v for k, v in os.environ.items() if k not in environment.NEVER_FOR_RANKS}


# Keeps one kind of child at work: starts it, hears it, ends it when it is silent, buries it.
#
# Nothing here waits. `custody` decides; all of it is called from one thread, that of the sidecar's
# loop, because a child dies with the thread that started it.

CLOSE_S = 1.0
"""For a process to go that was told to, or that has closed its pipe."""


class ChildSupervisor:
    """One kind of child. `listen` is told the pipe of each new one; one that `leads_session` may
    change what share of the machine its session has."""

    def __init__(
        self,
        kind: str,
        command: Sequence[str],
        patience_s: float,
        listen: Callable[[int], None] = lambda _: None,
        leads_session: bool = False,
    ) -> None:
        self.kind = kind
        self.custody = RestartPolicy(patience_s)
        self.is_absent = False
        """The last answer was that there is no driver."""
        self.trouble = ""
        """Why there are no answers, where it is not silence; empty: there are some, or will be."""
        self.stuck = 0
        """Children that a SIGKILL has not ended."""
        self._command = tuple(command)
        self._listen = listen
        self._leads_session = leads_session
        self._child: ChildProcess | None = None
        self._killed: list[ChildProcess] = []
        self._asking = ""
        """What the one that was silent last had been about to ask."""

    @property
    def pids(self) -> tuple[int, ...]:
        """Of all that are alive, the stuck ones included."""
        running = [] if self._child is None else [self._child]
        return tuple(child.process.pid for child in (*running, *self._killed))

    @property
    def silence(self) -> NvmlSilence | None:
        """What the driver does not answer; None while it does."""
        since_s = self.custody.silent_since_s
        if since_s is None:
            return None
        return NvmlSilence(self.kind, since_s, self._asking, self.stuck)

    def look(self, now_s: float) -> list[Message]:
        """What was said since the look before; and whatever is due is done."""
        self._bury(now_s)
        self.stuck = sum(now_s - child.killed_s >= CLOSE_S for child in self._killed)
        messages: list[Message] = []
        if self._child is not None:
            messages = self._hear(self._child, now_s)
        deed = self.custody.deed(now_s)
        if deed is RestartStep.END and self._child is not None:
            log.warning("killing the NVML child (%s): no answer to %s", self.kind, self._asking)
            self._end(self._child, now_s)
        elif deed is RestartStep.START:
            self._start(now_s)
        return messages

    def close(self) -> None:
        """End all: none has anything to save. One that is stuck goes when the kernel lets it."""
        children = [*([] if self._child is None else [self._child]), *self._killed]
        for child in children:
            signal_child(own_child(child.process))
        for child in children:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.process.wait(CLOSE_S)
            child.close()
        self._child, self._killed = None, []

    def _hear(self, child: ChildProcess, now_s: float) -> list[Message]:
        messages: list[Message] = []
        if child.closed_s is None:
            messages = self._read(child, now_s)
        note = read_board(child.board)
        is_heard = bool(messages) or note.beats != child.note.beats
        child.note = note
        self.custody = self.custody.looked(now_s, is_heard)
        if self.custody.silent_since_s is not None:
            self._asking = note.asking or self._asking
        if messages:
            child.last = messages[-1]
            self.is_absent = isinstance(child.last, Absent)
            self.trouble = child.last.why if isinstance(child.last, Failed) else ""
        if child.closed_s is not None:
            self._part(child, child.closed_s, now_s)
        return messages

    def _read(self, child: ChildProcess, now_s: float) -> list[Message]:
        messages: list[Message] = []
        try:
            for content in child.frames.cut(child.read(now_s)):
                messages.append(wire.parse_message(content, child.reading))
                if isinstance(messages[-1], GpuReading):
                    child.reading = messages[-1]
        except (BadFrameError, BadMessageError) as error:
            messages.append(Failed(f"the NVML child ({self.kind}) makes no sense: {error}"))
            signal_child(own_child(child.process))
            child.closed_s = now_s
        return messages

    def _part(self, child: ChildProcess, closed_s: float, now_s: float) -> None:
        """From one that says nothing more: it has ended, or is about to."""
        code = child.process.poll()
        if code is None and now_s - closed_s < CLOSE_S:
            return
        if isinstance(child.last, Absent):
            self.custody = self.custody.absent(now_s, is_gone=code is not None)
        else:
            self.custody = self.custody.ended(now_s, is_gone=code is not None)
        if not isinstance(child.last, Absent | Failed):
            how = "does not end" if code is None else how_it_ended(code)
            self.trouble = f"the NVML child ({self.kind}) {how}"
        self._child = None
        if code is None:
            self._kill(child, now_s)
        else:
            child.close()

    def _end(self, child: ChildProcess, now_s: float) -> None:
        self.custody = self.custody.killed(now_s)
        self._child = None
        self._kill(child, now_s)

    def _kill(self, child: ChildProcess, now_s: float) -> None:
        signal_child(own_child(child.process))
        child.killed_s = now_s
        self._killed.append(child)

    def _bury(self, now_s: float) -> None:
        for child in self._killed:
            if child.process.poll() is not None:
                self.custody = self.custody.buried(now_s, child.killed_s)
                child.close()
        self._killed = [child for child in self._killed if child.process.returncode is None]

    def _start(self, now_s: float) -> None:
        self.custody = self.custody.started(now_s)
        try:
            self._child = start(self._command, self._leads_session)
        except OSError as error:  # no memory, no process left
            self.trouble = f"no NVML child ({self.kind}) could be started: {error}"
            self.custody = self.custody.ended(now_s, is_gone=True)
        else:
            self._listen(self._child.pipe)


# Which GPUs were there: a child that is new has never seen one that fell away before. Pure.

GONE = "the driver listed it before and does not any more"


def bare(gpu: Gpu, lost: str = "") -> Gpu:
    """Who it is, and nothing of how it fares."""
    return replace(gpu, values={}, refused={}, users=None, lost=lost)


def with_known(reading: GpuReading, known: Mapping[str, Gpu]) -> GpuReading:
    """The reading with all that is known of GPUs that are in it no more; `known` by UUID."""
    there = {gpu.uuid for gpu in reading.gpus}
    missing = {gpu.index: gpu for uuid, gpu in known.items() if uuid not in there}
    gpus = []
    for gpu in reading.gpus:
        # One that can't be opened does not say who it is.
        is_nameless = not gpu.uuid and gpu.index in missing
        gpus.append(bare(missing.pop(gpu.index), gpu.lost) if is_nameless else gpu)
    gpus += [bare(gpu, GONE) for gpu in missing.values()]
    expected = max(reading.expected or 0, len(known))
    return replace(reading, gpus=tuple(gpus), expected=expected)


def known_by(reading: GpuReading, known: Mapping[str, Gpu]) -> dict[str, Gpu]:
    """The same with the GPUs of this reading."""
    return {**known, **{gpu.uuid: gpu for gpu in reading.gpus if gpu.uuid}}
