"""Keeps one kind of child at work: starts it, hears it, ends it when it is silent, buries it.

Nothing here waits. `custody` decides; all of it is called from one thread, that of the sidecar's
loop, because a child dies with the thread that started it.
"""

from __future__ import annotations

import contextlib
import logging
import subprocess
from collections.abc import Callable, Sequence

from holdfast.ending_processes import signal_child
from holdfast.permit import own_child
from holdfast_sidecar.nvml import wire
from holdfast_sidecar.nvml.child import Child, start
from holdfast_sidecar.nvml.custody import Custody, Deed
from holdfast_sidecar.nvml.framing import BadFrameError
from holdfast_sidecar.nvml.note import read_board
from holdfast_sidecar.nvml.wire import Absent, BadMessageError, Failed, Message
from holdfast_sidecar.readings.gpu import GpuReading, NvmlSilence
from holdfast_sidecar.records.formatting import how_it_ended

log = logging.getLogger(__name__)

CLOSE_S = 1.0
"""For a process to go that was told to, or that has closed its pipe."""


class Keeper:
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
        self.custody = Custody(patience_s)
        self.is_absent = False
        """The last answer was that there is no driver."""
        self.trouble = ""
        """Why there are no answers, where it is not silence; empty: there are some, or will be."""
        self.stuck = 0
        """Children that a SIGKILL has not ended."""
        self._command = tuple(command)
        self._listen = listen
        self._leads_session = leads_session
        self._child: Child | None = None
        self._killed: list[Child] = []
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
        if deed is Deed.END and self._child is not None:
            log.warning("killing the NVML child (%s): no answer to %s", self.kind, self._asking)
            self._end(self._child, now_s)
        elif deed is Deed.START:
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

    def _hear(self, child: Child, now_s: float) -> list[Message]:
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

    def _read(self, child: Child, now_s: float) -> list[Message]:
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

    def _part(self, child: Child, closed_s: float, now_s: float) -> None:
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

    def _end(self, child: Child, now_s: float) -> None:
        self.custody = self.custody.killed(now_s)
        self._child = None
        self._kill(child, now_s)

    def _kill(self, child: Child, now_s: float) -> None:
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
