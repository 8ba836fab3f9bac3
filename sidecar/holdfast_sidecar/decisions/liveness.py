"""Who is alive, judged by counters that move, on the judge's own monotonic clock.

Clocks of other nodes and lifetimes of keys take no part.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

COUNTED_BEATS = 2.0
"""A gap between two looks counts for no more than this. A judge looks once a beat; beyond twice
that it slept or was starved itself, and a machine that starves one process starves others too."""


@dataclass(frozen=True)
class Beat:
    """A counter as read: it counts only within one incarnation of its writer."""

    incarnation: str
    count: int


@dataclass
class _Seen:
    beat: Beat
    moved_at: float


class Heartbeats:
    """Remembers when each counter last moved.

    Deadlines start again whenever the judge itself can't have seen them move: it was away, or the
    server changed. So a frozen judge or a failover never declares a healthy node lost.
    """

    def __init__(self, counted_s: float, late_after_s: float) -> None:
        """A gap between looks counts for `counted_s` at most; after one of more than
        `late_after_s` all deadlines start again."""
        self._counted_s = counted_s
        self._late_after_s = late_after_s
        self._seen: dict[str, _Seen] = {}
        self._server = ""
        self._asked_at: float | None = None

    def observe(
        self, beats: Mapping[str, Beat], server: str, asked_at: float, answered_at: float
    ) -> None:
        """Take in a reading: monotonic seconds before the store was asked, and after.

        What moved has moved by `answered_at`; what stands still is known to until `asked_at`. So
        a store that keeps everybody waiting makes nobody look silent.
        """
        gap_s = 0.0 if self._asked_at is None else asked_at - self._asked_at
        if gap_s > self._late_after_s or server != self._server:
            for known in self._seen.values():
                known.moved_at = answered_at
        elif gap_s > self._counted_s:
            for known in self._seen.values():
                known.moved_at += gap_s - self._counted_s
        self._server, self._asked_at = server, asked_at
        for name in self._seen.keys() - beats.keys():
            del self._seen[name]
        for name, beat in beats.items():
            seen = self._seen.get(name)
            if seen is None or seen.beat != beat:
                self._seen[name] = _Seen(beat, answered_at)

    def still_for(self, name: str, now: float) -> float:
        """Seconds this counter has stood still; infinity when it was never read."""
        seen = self._seen.get(name)
        return float("inf") if seen is None else max(0.0, now - seen.moved_at)

    def next_due_s(self, names: Iterable[str], timeout_s: float, now: float) -> float:
        """Seconds until the first of these that still count as alive will have been silent for
        this long; infinity when there is none. Who looks then learns of it at once."""
        due = (timeout_s - self.still_for(name, now) for name in names)
        return min((left_s for left_s in due if left_s > 0), default=float("inf"))
