"""What became of the packets of one window, and of the windows before. No clock of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median

from holdfast_sidecar.readings.round_trips import RoundTrips, Trips

KEPT = 3
"""Windows: what is told as slow was so in all of them."""


@dataclass
class Tally:
    """Fed by the thread that sends and receives."""

    _sent: dict[str, int] = field(default_factory=dict)
    _times: dict[str, list[float]] = field(default_factory=dict)
    _windows: tuple[Mapping[str, Trips], ...] = ()
    _ever: frozenset[str] = frozenset()

    def sent(self, node: str) -> None:
        """A packet left for this node."""
        self._sent[node] = self._sent.get(node, 0) + 1

    def back(self, node: str, took_s: float) -> None:
        """One came back."""
        self._times.setdefault(node, []).append(took_s)
        self._ever |= {node}

    def close_window(self) -> None:
        """What has not come back by now is lost."""
        window = {
            node: _trips(count, self._times.get(node, ())) for node, count in self._sent.items()
        }
        self._windows = (*self._windows, window)[-KEPT:] if window else self._windows
        self._sent, self._times = {}, {}

    def read(self) -> RoundTrips:
        """As of the last whole window."""
        return RoundTrips(self._windows, self._ever)


def _trips(sent: int, times: list[float] | tuple[()]) -> Trips:
    return Trips(sent, max(0, sent - len(times)), median(times) if times else None)
