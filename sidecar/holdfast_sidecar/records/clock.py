"""The present, as it is handed to what decides."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Moment:
    """The present, as the judges are told it."""

    now_s: float
    now_unix_s: float
    node: str
    awake_since_s: float = 0.0
    """Since when this loop has ticked without a gap: while it slept it saw nobody stand still, so
    no silence is counted from before."""

    def age_s(self, since_s: float) -> float:
        """For how long something has lasted under our eyes."""
        return max(0.0, self.now_s - max(since_s, self.awake_since_s))

    def unix_s(self, at_s: float) -> float:
        """A monotonic time as wall clock of this node."""
        return self.now_unix_s - max(0.0, self.now_s - at_s)
