"""Questions to checkpoint storage that nobody waits for: asked again until they are answered.

An answer that nobody fetches is thrown away, since what it says of storage grows old.
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
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from holdfast.contract import environment
from holdfast.contract.ending_processes import signal_child
from holdfast.contract.permit import own_child
from holdfast_sidecar.checkpoint.directory import checkpoint_url
from holdfast_sidecar.checkpoint.ledger import NothingResumable
from holdfast_sidecar.checkpoint.writer.requests import (
    GiveVerdict,
    NoteFailedLoad,
    Question,
    Reply,
    Seal,
    Settle,
    Tidy,
    WhatIsThere,
    WhatToResume,
    WriterSetup,
    read_answer,
    read_reply,
    spell_question,
)
from holdfast_sidecar.config.settings import CheckpointSettings
from holdfast_sidecar.linux.threads import start_thread
from holdfast_sidecar.records.checkpoint import CheckpointOrder, LedgerEntry, SavedPart
from holdfast_sidecar.records.codec import encode
from holdfast_sidecar.records.formatting import how_it_ended
from holdfast_sidecar.records.plan import Candidate, Plan

log = logging.getLogger(__name__)

A = TypeVar("A")

STALE_S = 5.0
"""Whoever wants an answer asks at every heartbeat, ten times as often."""


@dataclass(frozen=True)
class StorageProgress:
    """How far a question is, in bytes; zeros while nothing is known."""

    done_bytes: int = 0
    total_bytes: int = 0


class StorageRequests(Protocol):
    """Where storage is asked; two twins: a writer process, and memory in the tests."""

    def ask(self, question: Question[A]) -> A | None:
        """The answer, once; None while there is none yet. Raises OSError when it came to nothing.

        Whoever asks the same question again before the answer is there does not ask twice.
        """

    def progress(self, question: Question[Any]) -> StorageProgress:
        """How far a question is that was asked and not yet answered."""

    def abandon(self, question: Question[Any], why: str) -> None:
        """Nobody wants the answer any more: what makes it is stopped, so that others may go on."""

    def hangs_for(self) -> float:
        """Since when the longest unanswered question saw no sign of life, seconds; 0: none."""

    def prepare(self) -> None:
        """A question will soon come: whoever answers may get up already."""


class Messenger(Protocol):
    """Carries questions to whoever answers. What comes back is handed to `deliver`."""

    def carry(self, number: int, question: Question[Any]) -> None:
        """Take this question there, in its own time."""

    def prepare(self) -> None:
        """Be ready to."""

    def stop(self, number: int, reason: str) -> None:
        """End who works on this question; what else it was asked is asked of the next."""

    def give_up(self, reason: str) -> None:
        """End who answers: it will not any more."""


@dataclass
class _Asked:
    number: int
    question: Question[Any]
    heard_s: float
    wanted_s: float
    progress: StorageProgress = StorageProgress()
    answer: Any = None
    error: str = ""

    @property
    def is_answered(self) -> bool:
        return self.answer is not None or bool(self.error)


class StorageClient:
    """The desk of a sidecar: both its threads ask here."""

    def __init__(
        self,
        patience_s: float,
        clock: Callable[[], float] = time.monotonic,
        wake: Callable[[], None] = lambda: None,
    ) -> None:
        self._patience_s = patience_s
        self._clock = clock
        self.wake = wake
        """Called when something was answered."""
        self._lock = threading.Lock()
        self._asked: dict[str, _Asked] = {}
        self._number = 0
        self.messenger: Messenger | None = None

    def ask(self, question: Question[A]) -> A | None:
        """See Desk."""
        now, key = self._clock(), _key(question)
        with self._lock:
            self._forget_stale(now)
            asked = self._asked.get(key)
            if asked is None:
                self._number += 1
                asked = self._asked[key] = _Asked(self._number, question, now, now)
                is_new = True
            else:
                asked.wanted_s, is_new = now, False
                if asked.is_answered:
                    del self._asked[key]
        if is_new and self.messenger is not None:
            self.messenger.carry(asked.number, question)
        if asked.error:
            raise OSError(asked.error)
        answer: A | None = asked.answer
        return answer

    def progress(self, question: Question[Any]) -> StorageProgress:
        """See Desk."""
        with self._lock:
            asked = self._asked.get(_key(question))
            return StorageProgress() if asked is None else asked.progress

    def abandon(self, question: Question[Any], why: str) -> None:
        """See Desk. Whoever answers can't be interrupted, so it is ended; another one starts."""
        with self._lock:
            asked = self._asked.pop(_key(question), None)
        if asked is not None and not asked.is_answered and self.messenger is not None:
            self.messenger.stop(asked.number, f"nobody waits for it any more: {why}")

    def hangs_for(self) -> float:
        """See Desk. One that hangs beyond all patience is ended, so that another may try."""
        now = self._clock()
        with self._lock:
            since = min((a.heard_s for a in self._asked.values() if not a.is_answered), default=now)
        silent_s = now - since
        if silent_s > self._patience_s and self.messenger is not None:
            self.messenger.give_up(f"storage did not answer within {self._patience_s:g} s")
        return silent_s

    def prepare(self) -> None:
        """See Desk."""
        if self.messenger is not None:
            self.messenger.prepare()

    def deliver(self, reply: Reply) -> None:
        """What came back about a question."""
        with self._lock:
            asked = next((a for a in self._asked.values() if a.number == reply.number), None)
            if asked is None or asked.is_answered:
                return
            self._hear(asked.question.is_long, self._clock())
            if not reply.is_last:
                asked.progress = StorageProgress(reply.done_bytes, reply.total_bytes)
                return
            asked.error = reply.error
            if not reply.error:
                asked.answer = read_answer(asked.question, reply.answer)
                asked.error = "" if asked.answer is not None else "the writer said nonsense"
            asked.wanted_s = self._clock()
        self.wake()

    def _hear(self, is_long: bool, now: float) -> None:
        """A sign of life: what waits in the same queue behind it does not hang either."""
        for asked in self._asked.values():
            if asked.question.is_long == is_long:
                asked.heard_s = now

    def _forget_stale(self, now: float) -> None:
        stale = [
            key
            for key, asked in self._asked.items()
            if asked.is_answered and now - asked.wanted_s > STALE_S
        ]
        for key in stale:
            del self._asked[key]


def _key(question: Question[Any]) -> str:
    return f"{type(question).__name__} {encode(question)}"


# The checkpoint storage as the leader asks it: through the desk, so that its lease never waits.


class StorageUnanswered(Exception):
    """Storage has not answered yet: to be asked again at the next exchange."""


@dataclass(frozen=True)
class LeaderStorage:
    """Storage behind a desk. Every method may raise Unanswered, and OSError."""

    settings: CheckpointSettings
    desk: StorageRequests

    def path(self, step: int, identifier: str) -> str:
        """Where a checkpoint shall lie; empty when no directory is configured."""
        return checkpoint_url(self.settings, step, identifier)

    def candidates(self, occasion: str) -> list[Candidate]:
        """Checkpoints to try, best first; raises NothingResumable when none of them is of use."""
        if not self.settings.dir:
            return []
        listed = self._ask(WhatToResume(occasion))
        if listed.obstacle:
            raise NothingResumable(listed.obstacle)
        return listed.candidates

    def entries(self, occasion: str) -> list[LedgerEntry]:
        """Every checkpoint that exists."""
        return self._ask(WhatIsThere(occasion)).entries if self.settings.dir else []

    def finish(self, order: CheckpointOrder, plan: Plan, parts: Sequence[SavedPart]) -> LedgerEntry:
        """Write the manifest: from then on the checkpoint exists."""
        entry = self._ask(Seal(order, plan, list(parts))).entry
        if entry is None:
            raise OSError("it was not sealed")
        return entry

    def settle(self, order: CheckpointOrder) -> LedgerEntry | None:
        """Its entry when it was sealed; None: it never will be."""
        return self._ask(Settle(order)).entry if self.settings.dir else None

    def tidy(self, entry: LedgerEntry, plan: Plan) -> None:
        """Remove what this checkpoint has made superfluous."""
        self._ask(Tidy(entry, plan))

    def failed_to_load(self, identifier: str, attempt: int) -> LedgerEntry | None:
        """Note that ranks could not load it; the entry when that has made it poisoned."""
        return self._ask(NoteFailedLoad(identifier, attempt)).entry

    def give_verdict(self, identifier: str, verdict: str, reason: str) -> LedgerEntry | None:
        """Note what became of a checkpoint; its entry, or None when it is gone."""
        return self._ask(GiveVerdict(identifier, verdict, reason)).entry

    def prepare(self) -> None:
        """It will soon be asked: whoever answers may get up already."""
        if self.settings.dir:
            self.desk.prepare()

    def _ask(self, question: Question[A]) -> A:
        answer = self.desk.ask(question)
        if answer is None:
            raise StorageUnanswered
        return answer


# The writer as a child of the sidecar: started when it is needed, started again when it died.
#
# One thread lives as long as the sidecar and starts every child, because a child dies with the
# thread that made it. Nothing here waits for storage, and nobody waits for this.

PAUSE_S = 1.0
"""After one that ended badly: whoever asks at every heartbeat must not start three a second."""

COMMAND = (sys.executable, "-m", "holdfast_sidecar.checkpoint.writer")


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
        errand: WriterSetup,
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
