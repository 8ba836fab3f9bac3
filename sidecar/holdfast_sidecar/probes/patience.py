"""Reads a probe that may never answer in a thread of its own, with a deadline.

A wedged driver keeps an NVML call for ever, and so does statvfs on a network file system whose
server is away. While a call hangs its reading is stale, that is absent, and the loop goes on.
"""

from __future__ import annotations

import queue
import threading
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from holdfast_sidecar.probes.runner import Probe, outcome
from holdfast_sidecar.threads import NONE_LEFT, start_thread

T = TypeVar("T")

DEADLINE_S = 1.0
"""A healthy driver answers within some 10 ms per GPU, a healthy host within some 2 ms."""


class SilentError(Exception):
    """The probe did not answer within the deadline."""


@dataclass
class Patient(Generic[T]):
    """A probe around another one."""

    probe: Probe[T]
    deadline_s: float = DEADLINE_S
    _questions: queue.SimpleQueue[float] = field(default_factory=queue.SimpleQueue)
    _answers: queue.SimpleQueue[T | Exception] = field(default_factory=queue.SimpleQueue)
    _is_asking: bool = False
    _thread: threading.Thread | None = None

    @property
    def name(self) -> str:
        """The inner probe's."""
        return self.probe.name

    def read(self, now_s: float) -> T:
        """What the probe reads or raises; SilentError while it does neither."""
        if self._thread is None:
            self._thread = start_thread(self._answer, self.name)
        if self._thread is None:
            raise SilentError(f"{self.name} is not asked: {NONE_LEFT}")
        # A question that hangs is not asked twice: its late answer ends the hang.
        wait_s = 0.0 if self._is_asking else self.deadline_s
        if not self._is_asking:
            self._is_asking = True
            self._questions.put(now_s)
        try:
            answer = self._answers.get(timeout=wait_s) if wait_s else self._answers.get_nowait()
        except queue.Empty:
            raise SilentError(f"{self.name} has not answered in {self.deadline_s:g} s") from None
        self._is_asking = False
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _answer(self) -> None:
        while True:
            now_s = self._questions.get()
            self._answers.put(outcome(self.probe, now_s))
