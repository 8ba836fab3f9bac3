"""A queue of questions, answered one after the other: no two writes are ever under way."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol, TextIO

from holdfast_sidecar.checkpoint.writer.requests import Question, Reply, spell_answer, spell_reply
from holdfast_sidecar.linux.threads import Session, be_meek, start_thread

log = logging.getLogger(__name__)


# The writer's one way to speak: whole lines, from whichever thread.


class LineWriter:
    """Says replies, one a line."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lock = threading.Lock()

    def say(self, reply: Reply) -> None:
        """Say it at once; a sidecar that is gone hears nothing, and we end with it."""
        with self._lock:
            try:
                self._stream.write(spell_reply(reply) + "\n")
                self._stream.flush()
            except BrokenPipeError:
                pass


SAY_EVERY_S = 0.25
"""Progress is for people and for the question whether storage hangs."""

Tell = Callable[[int, int], None]
"""Told of bytes done, and of how many."""


class Answers(Protocol):
    """Who knows."""

    def answer(self, question: Question[Any], tell: Tell) -> object:
        """The answer. Raises OSError."""


class RequestQueue:
    """Takes questions and answers them in the thread that runs it."""

    def __init__(self, answers: Answers, mouth: LineWriter, session: Session) -> None:
        self._answers = answers
        self._mouth = mouth
        self._session = session
        self._waiting: queue.SimpleQueue[tuple[int, Question[Any]]] = queue.SimpleQueue()
        self._taken = 0
        self._answered = 0

    @property
    def is_idle(self) -> bool:
        """Whether everything taken was answered."""
        return self._taken == self._answered

    def take(self, number: int, question: Question[Any]) -> None:
        """Line up a question. What is patient before it is no longer, as it waits for that."""
        if not question.may_wait:
            self._session.stand_up()
        self._taken += 1
        self._waiting.put((number, question))

    def run(self) -> None:
        """Answer for ever."""
        while True:
            number, question = self._waiting.get()
            if question.may_wait:
                # In a thread of its own: who once gave way may not go back to its rank.
                patient = start_thread(self._give_way, "patient", (number, question))
                if patient is not None:
                    patient.join()
                else:
                    self._answer(number, question)
            else:
                self._answer(number, question)
            self._answered += 1

    def _give_way(self, number: int, question: Question[Any]) -> None:
        be_meek()
        self._session.give_way()
        self._answer(number, question)

    def _answer(self, number: int, question: Question[Any]) -> None:
        self._mouth.say(self._reply(number, question))

    def _reply(self, number: int, question: Question[Any]) -> Reply:
        try:
            answer = self._answers.answer(question, self._teller(number))
        except OSError as error:
            log.warning("%s: %s", type(question).__name__, error)
            return Reply(number, error=str(error) or type(error).__name__)
        return Reply(number, answer=spell_answer(answer))

    def _teller(self, number: int) -> Tell:
        said_s = float("-inf")

        def tell(done_bytes: int, total_bytes: int) -> None:
            nonlocal said_s
            now_s = time.monotonic()
            if now_s - said_s >= SAY_EVERY_S:
                said_s = now_s
                self._mouth.say(Reply(number, done_bytes=done_bytes, total_bytes=total_bytes))

        return tell
