"""What this node's sidecar sent and received for peer copies since it started, for metrics."""

from __future__ import annotations

import dataclasses
import threading
from dataclasses import dataclass, field


@dataclass(frozen=True)
class PeerCounts:
    """Counters; `seconds` is time spent receiving, all connections added up."""

    received_bytes: int = 0
    sent_bytes: int = 0
    seconds: float = 0.0
    copies: int = 0
    failures: int = 0
    refused: int = 0


@dataclass
class Tally:
    """Counts from any thread."""

    _counts: PeerCounts = field(default_factory=PeerCounts)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def received(self, size: int, seconds: float) -> None:
        """A whole copy came in."""
        self._add(received_bytes=size, seconds=seconds, copies=1)

    def sent(self, size: int) -> None:
        """A slot was sent."""
        self._add(sent_bytes=size)

    def failed(self) -> None:
        """A transfer broke off, or its node could not be reached."""
        self._add(failures=1)

    def read(self, refused: int) -> PeerCounts:
        """What was counted so far; `refused` is the server's own count."""
        with self._lock:
            return dataclasses.replace(self._counts, refused=refused)

    def _add(self, **more: float) -> None:
        with self._lock:
            sums = {name: getattr(self._counts, name) + value for name, value in more.items()}
            self._counts = dataclasses.replace(self._counts, **sums)
