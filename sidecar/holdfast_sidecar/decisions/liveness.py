"""Who is alive, judged by counters that move, on the judge's own monotonic clock.

Clocks of other nodes and lifetimes of keys take no part.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


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

    Deadlines start again whenever the judge itself can't have seen them move: it was late, or the
    server changed. So a frozen judge or a failover never declares a healthy node lost.
    """

    def __init__(self, late_after_s: float) -> None:
        self._late_after_s = late_after_s
        self._seen: dict[str, _Seen] = {}
        self._server = ""
        self._looked_at: float | None = None

    def observe(self, beats: Mapping[str, Beat], server: str, now: float) -> None:
        """Take in a reading. `now` is monotonic seconds."""
        late = self._looked_at is not None and now - self._looked_at > self._late_after_s
        if late or server != self._server:
            for known in self._seen.values():
                known.moved_at = now
        self._server, self._looked_at = server, now
        for name in self._seen.keys() - beats.keys():
            del self._seen[name]
        for name, beat in beats.items():
            seen = self._seen.get(name)
            if seen is None or seen.beat != beat:
                self._seen[name] = _Seen(beat, now)

    def still_for(self, name: str, now: float) -> float:
        """Seconds this counter has stood still; infinity when it was never read."""
        seen = self._seen.get(name)
        return float("inf") if seen is None else now - seen.moved_at
