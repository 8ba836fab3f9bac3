"""Who is alive, judged by counters that move, on the judge's own monotonic clock.

Clocks of other nodes and lifetimes of keys take no part.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

COUNTED_BEATS = 2.0
"""A gap between two looks counts for no more than this. A judge looks once a beat; beyond twice
that it slept or was starved itself, and a machine that starves one process starves others too."""


ANY_GROUP = ""
"""Stands for all process groups of ranks that don't tell which they are in."""


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


@dataclass(frozen=True)
class Steps:
    """What all ranks of a node have done in this attempt."""

    completed: int
    collectives: Mapping[str, int]
    """By process group, that each of its ranks here began at the least; see ANY_GROUP."""

    def groups_stepping_since(self, before: Steps) -> frozenset[str]:
        """Those in which each step had a collective, if a whole step lies between the two."""
        more = self.completed - before.completed
        return frozenset(
            group
            for group, count in self.collectives.items()
            if more >= 2 and count - before.collectives.get(group, count) >= more
        )


class StepTimes:
    """Remembers when the newest step that each node completed began at the earliest.

    Ranks train in step, so a step that was completed on one node, and begun after another one was
    last heard of, shows that the other one lived on. Steps without a collective of a group that the
    other one is in, as of ranks that train apart, show nothing. Steps only ever speak for a node:
    ranks may stand still for reasons of their own, and a step that is longer than a silence says
    nothing.
    """

    def __init__(self, lag_s: float) -> None:
        """A report may be so old when it is written."""
        self._lag_s = lag_s
        self._attempt = -1
        self._asked_at = float("-inf")
        self._beats: dict[str, Beat] = {}
        self._counts: dict[str, deque[tuple[Steps, float]]] = {}
        self._began: dict[str, dict[str, float]] = {}
        """Node -> group -> when."""
        self._groups: dict[str, frozenset[str]] = {}

    def observe(
        self, attempt: int, steps: Mapping[str, Steps], beats: Mapping[str, Beat], asked_at: float
    ) -> None:
        """Take in a reading: what all ranks of a node have done, and its heartbeat."""
        if attempt != self._attempt:
            self._attempt, self._counts, self._began, self._beats = attempt, {}, {}, {}
            self._groups = {}
        # What is read anew was written after the look before.
        counted_at, self._asked_at = self._asked_at - self._lag_s, asked_at
        for node, done in steps.items():
            if (beat := beats.get(node)) is None or self._beats.get(node) == beat:
                continue
            self._beats[node] = beat
            known = self._counts.setdefault(node, deque(maxlen=3))
            if known and known[-1][0].completed == done.completed:
                known.pop()
            self._groups[node] = frozenset(done.collectives)
            began = self._began.setdefault(node, {})
            # It began when the one before it was complete: after any look that saw one less yet.
            for before, at in known:
                for group in done.groups_stepping_since(before):
                    began[group] = max(at, began.get(group, float("-inf")))
            known.append((done, counted_at))

    def began_elsewhere(self, node: str) -> float:
        """When the newest such step of another node began; -infinity: none is known."""
        own = self._groups.get(node, frozenset([ANY_GROUP]))
        return max(
            (
                at
                for name, began in self._began.items()
                for group, at in began.items()
                if name != node and (group in own or ANY_GROUP in (group, *own))
            ),
            default=float("-inf"),
        )
