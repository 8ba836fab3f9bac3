"""Questions to checkpoint storage that nobody waits for: asked again until they are answered.

An answer that nobody fetches is thrown away, since what it says of storage grows old.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from holdfast_sidecar.desk.questions import Question, Reply, read_answer
from holdfast_sidecar.records.codec import encode

A = TypeVar("A")

STALE_S = 5.0
"""Whoever wants an answer asks at every heartbeat, ten times as often."""


@dataclass(frozen=True)
class Progress:
    """How far a question is, in bytes; zeros while nothing is known."""

    done_bytes: int = 0
    total_bytes: int = 0


class Desk(Protocol):
    """Where storage is asked; two twins: a writer process, and memory in the tests."""

    def ask(self, question: Question[A]) -> A | None:
        """The answer, once; None while there is none yet. Raises OSError when it came to nothing.

        Whoever asks the same question again before the answer is there does not ask twice.
        """

    def progress(self, question: Question[Any]) -> Progress:
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
    progress: Progress = Progress()
    answer: Any = None
    error: str = ""

    @property
    def is_answered(self) -> bool:
        return self.answer is not None or bool(self.error)


class StorageDesk:
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

    def progress(self, question: Question[Any]) -> Progress:
        """See Desk."""
        with self._lock:
            asked = self._asked.get(_key(question))
            return Progress() if asked is None else asked.progress

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
                asked.progress = Progress(reply.done_bytes, reply.total_bytes)
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
