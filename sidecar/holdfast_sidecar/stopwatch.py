"""How long something has been so, and what time it is: neither by a clock that may be set."""

from __future__ import annotations

from collections.abc import Callable


class Stopwatch:
    """How long something has been so: starts again when its key changes."""

    def __init__(self) -> None:
        self._started: dict[str, tuple[str, float]] = {}

    def elapsed(self, name: str, key: str, now: float) -> float:
        """Seconds since `name` first had this key. An empty key stops the watch."""
        if not key:
            self._started.pop(name, None)
            return 0.0
        if self._started.get(name, ("", 0.0))[0] != key:
            self._started[name] = (key, now)
        return now - self._started[name][1]


class SharedClock:
    """A wall clock that all who lead share: the store's, read once, and carried on by this node's
    monotonic clock. Whoever sets a node's clock moves no deadline."""

    def __init__(self, ask: Callable[[], float]) -> None:
        self._ask = ask
        self._read_for: object = None
        self._ahead_s = 0.0

    def unix_s(self, occasion: object, now: float) -> float:
        """The time at `now` (monotonic seconds); asks anew on each new occasion."""
        if occasion != self._read_for:
            self._ahead_s, self._read_for = self._ask() - now, occasion
        return now + self._ahead_s
