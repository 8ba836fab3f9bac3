"""What a usual step of a role takes in a frame, and beyond what one of its ranks stands out."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

LEAST = 0.2
DEVIATIONS = 6.0
"""Beyond the middle of the role, in one frame: more than the tails of healthy ranks reach often."""

KEPT = 256
FEWEST = 16
"""Times beside the middle one: those of three ranks and eight frames."""


@dataclass
class RolePace:
    """Follows one role. A frame of three ranks says nothing of how much they vary, and where one of
    four is late, their quartile is that one: so it is asked of the frames before as well."""

    _apart: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT))

    def follow(self, own: Iterable[float]) -> tuple[float, float] | None:
        """The usual time, and the limit, by these ranks' own times; None: not known yet."""
        some = sorted(own)
        middle = (len(some) - 1) // 2
        usual = max(1.0, some[middle])
        limit = self._limit(usual)
        self._apart.extend(abs(one / usual - 1.0) for one in some[:middle] + some[middle + 1 :])
        return None if limit is None else (usual, limit)

    def _limit(self, usual: float) -> float | None:
        if len(self._apart) < FEWEST:
            return None
        # Half of a normal distribution lies within 0.67 deviations.
        sigma = sorted(self._apart)[len(self._apart) // 2] / 0.67
        return usual * (1.0 + max(LEAST, DEVIATIONS * sigma))
