"""Runs a probe when it is due; the one place that catches, times and counts a probe's failure."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from holdfast_sidecar.records.reports import ProbeHealth

T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")

logger = logging.getLogger(__name__)


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
