"""The writer as a child of the sidecar: started when it is needed, started again when it died.

One thread lives as long as the sidecar and starts every child, because a child dies with the thread
that made it. Nothing here waits for storage, and nobody waits for this.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from holdfast import environment
from holdfast.ending_processes import signal_child
from holdfast.permit import own_child
from holdfast_sidecar.desk.questions import Errand, Question, Reply, read_reply, spell_question
from holdfast_sidecar.linux.threads import start_thread
from holdfast_sidecar.records.codec import encode
from holdfast_sidecar.records.formatting import how_it_ended

log = logging.getLogger(__name__)

PAUSE_S = 1.0
"""After one that ended badly: whoever asks at every heartbeat must not start three a second."""

COMMAND = (sys.executable, "-m", "holdfast_sidecar.writer")


@dataclass
class _Child:
    process: subprocess.Popen[str]
    unanswered: dict[int, Question[Any]] = field(default_factory=dict)
    reason: str = ""
    """Why it was ended, if it was."""
    is_stopped: bool = False
    """For one question that nobody asks any more: the others are for the next child."""
    is_gone: bool = False


class WriterProcess:
    """Carries questions to a child and hands back what it says."""

    def __init__(
        self,
        errand: Errand,
        deliver: Callable[[Reply], None],
        command: tuple[str, ...] = COMMAND,
    ) -> None:
        self._errand = errand
        self._deliver = deliver
        self._command = command
        self._orders: queue.SimpleQueue[tuple[int, Question[Any]] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._child: _Child | None = None
        self._failed_s = float("-inf")
        self._keeper: threading.Thread | None = None

    @property
    def pid(self) -> int:
        """Of the child; 0 while there is none."""
        child = self._child
        return 0 if child is None else child.process.pid

    def carry(self, number: int, question: Question[Any]) -> None:
        """See Messenger."""
        self._ensure_keeper()
        self._orders.put((number, question))

    def prepare(self) -> None:
        """See Messenger."""
        if self._child is None:
            self._ensure_keeper()
            self._orders.put(None)

    def stop(self, number: int, reason: str) -> None:
        """See Messenger."""
        with self._lock:
            child = self._child
            if child is None or child.unanswered.pop(number, None) is None:
                return
            child.is_stopped = True
        log.info("the writer is ended: %s", reason)
        self._end(child)

    def give_up(self, reason: str) -> None:
        """See Messenger."""
        with self._lock:
            child = self._child
            if child is None:
                return
            child.reason = reason
        self._end(child)

    def _end(self, child: _Child) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal_child(own_child(child.process))
        self._bury(child)  # one that hangs in the kernel may stay for long

    def _ensure_keeper(self) -> None:
        with self._lock:  # both of a sidecar's threads ask
            if self._keeper is None:
                self._keeper = start_thread(self._keep, "writer")

    def _keep(self) -> None:
        while True:
            order = self._orders.get()
            try:
                child = self._child or self._start()
            except (OSError, RuntimeError) as error:  # no memory, no process or thread left
                self._failed_s = time.monotonic()
                log.warning("no writer could be started: %s", error)
                if order is not None:
                    self._deliver(Reply(order[0], error=f"no writer could be started: {error}"))
                continue
            if order is not None:
                self._send(child, *order)

    def _start(self) -> _Child:
        time.sleep(max(0.0, self._failed_s + PAUSE_S - time.monotonic()))
        process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=_surroundings(),
            start_new_session=True,  # whose share of the machine it may make smaller
        )
        child = _Child(process)
        with self._lock:
            self._child = child
        _write(process, encode(self._errand))
        try:
            threading.Thread(target=self._listen, args=[child], name="answers", daemon=True).start()
        except RuntimeError as error:
            self.give_up(str(error))
            raise
        return child

    def _send(self, child: _Child, number: int, question: Question[Any]) -> None:
        with self._lock:
            if child.is_gone:
                self._orders.put((number, question))
                return
            child.unanswered[number] = question
        # Where it ends just now, `_bury` says what becomes of the question.
        _write(child.process, spell_question(number, question))

    def _listen(self, child: _Child) -> None:
        assert child.process.stdout is not None
        for line in child.process.stdout:
            reply = read_reply(line)
            if reply is None:
                continue
            if reply.is_last:
                with self._lock:
                    child.unanswered.pop(reply.number, None)
            self._deliver(reply)
        child.process.wait()
        self._bury(child)

    def _bury(self, child: _Child) -> None:
        """Once it is gone: where it was well the next one is asked, else all has failed."""
        with self._lock:
            if child.is_gone:
                return
            child.is_gone = True
            if self._child is child:
                self._child = None
            left, child.unanswered = child.unanswered, {}
            code = child.process.poll()
            is_well = code == 0 or child.is_stopped  # idle, or ended for another question's sake
            if not is_well:
                self._failed_s = time.monotonic()
        if is_well:
            for number, question in left.items():
                self._orders.put((number, question))
            return
        how = "can't be ended" if code is None else how_it_ended(code)
        reason = child.reason or f"the writer process {how}"
        log.warning("%s (%d questions unanswered)", reason, len(left))
        for number in left:
            self._deliver(Reply(number, error=reason))


def _surroundings() -> dict[str, str]:
    """As the sidecar's, for storage may need credentials; but it has no business with Redis."""
    kept = {k: v for k, v in os.environ.items() if k not in environment.NEVER_FOR_RANKS}
    return {**kept, "PYTHONSAFEPATH": "1", "OMP_NUM_THREADS": "1"}


def _write(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError, ValueError):
        process.stdin.write(line + "\n")
        process.stdin.flush()
