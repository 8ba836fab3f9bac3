"""The cap on what this node fetches: a bucket of bytes that fills at a steady rate."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

from holdfast_sidecar.peers.lifeline import Lifeline

BURST_S = 0.1
"""How much of the rate may pass at once: short for a link's queues, long for a thread's turn."""


@dataclass
class Bucket:
    """Pure: told how many bytes and when, answers how long to wait. Rate 0: no cap."""

    bytes_per_s: float
    _level: float = 0.0
    _at_s: float = float("-inf")

    def take(self, size: int, now_s: float) -> float:
        """Seconds to wait, after these bytes, before the next may pass."""
        if self.bytes_per_s <= 0:
            return 0.0
        most = self.bytes_per_s * BURST_S
        refill = (now_s - self._at_s) * self.bytes_per_s
        self._level = min(most, self._level + max(0.0, refill)) - size
        self._at_s = max(now_s, self._at_s)
        return max(0.0, -self._level / self.bytes_per_s)


@dataclass
class Throttle:
    """One bucket for all of this node's transfers."""

    bucket: Bucket
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def admit(self, size: int, lifeline: Lifeline) -> None:
        """Wait until so many bytes may pass, or the lifeline is cut."""
        with self._lock:
            wait_s = self.bucket.take(size, time.monotonic())
        if wait_s > 0:
            lifeline.wait(wait_s)
