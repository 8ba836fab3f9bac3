"""Runs a probe when it is due; the one place that catches, times and counts a probe's failure."""

from __future__ import annotations

import logging
import queue
import threading
import time
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from holdfast_sidecar.linux.threads import NONE_LEFT, start_thread
from holdfast_sidecar.records.reports import ProbeHealth

logger = logging.getLogger(__name__)

T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")


class Probe(Protocol[T_co]):
    """Reads one part of the machine."""

    @property
    def name(self) -> str:
        """What metrics and logs call it."""

    def read(self, now_s: float) -> T_co:
        """Read now. Raises when it can't, PartlyReadError where some of it can't be; an absent part
        is a value, not an error."""


@runtime_checkable
class Closing(Protocol):
    """A probe that has something of its own to end: a child."""

    def close(self) -> None:
        """End it; it is not read any more."""


class PartlyReadError(Exception):
    """Something of what was asked made no sense, and why; the rest is a reading all the same."""

    def __init__(self, reading: Any, why: str) -> None:
        super().__init__(why)
        self.reading = reading


def outcome(probe: Probe[T], now_s: float) -> T | Exception:
    """What the probe reads, or what it raises."""
    try:
        return probe.read(now_s)
    except Exception as error:
        return error


@dataclass
class ProbeRunner(Generic[T]):
    """One probe with its rhythm. `latest` is None before the first success and while it fails:
    what can't be read is absent, never yesterday's value and never 0."""

    probe: Probe[T]
    every_s: float
    latest: T | None = None
    health: ProbeHealth = field(init=False)
    _due_s: float = float("-inf")

    def __post_init__(self) -> None:
        self.health = ProbeHealth(self.probe.name, is_up=True, failures=0, duration_s=0.0)

    def read(self, now_s: float) -> T | None:
        """The newest value; read anew when its time has come."""
        if now_s < self._due_s:
            return self.latest
        self._due_s = now_s + self.every_s
        started = time.perf_counter()
        read = outcome(self.probe, now_s)
        took_s = time.perf_counter() - started
        if isinstance(read, PartlyReadError):
            self.latest = read.reading
            self._failed(str(read), now_s, took_s)
        elif isinstance(read, Exception):
            self.latest = None
            self._failed(f"{type(read).__name__}: {read}", now_s, took_s)
        else:
            self.latest = read
            self._succeeded(took_s)
        return self.latest

    def close(self) -> None:
        """Let the probe end what is its own."""
        if isinstance(self.probe, Closing):
            self.probe.close()

    def _failed(self, error: str, now_s: float, duration_s: float) -> None:
        before = self.health
        if before.is_up:
            logger.warning("probe %s fails: %s", before.name, error)
        self.health = ProbeHealth(
            name=before.name,
            is_up=False,
            failures=before.failures + 1,
            duration_s=duration_s,
            error=error,
            failing_since_s=now_s if before.is_up else before.failing_since_s,
        )

    def _succeeded(self, duration_s: float) -> None:
        before = self.health
        if not before.is_up:
            logger.info("probe %s works again after %d failures", before.name, before.failures)
        self.health = ProbeHealth(before.name, True, before.failures, duration_s)


# Reads a probe that may never answer in a thread of its own, with a deadline.
#
# A wedged driver keeps an NVML call for ever, and so does statvfs on a network file system whose
# server is away. While a call hangs its reading is stale, that is absent, and the loop goes on.

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
