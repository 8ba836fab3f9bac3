"""How long something has been so."""

from __future__ import annotations


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
