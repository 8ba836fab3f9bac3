"""When the cable between two nodes gets slower, and to what rate. Pure: it is told steps and times.

A ring of four ranks sends 2 x 3/4 of a gradient across the cable in either direction. At a rate at
which that takes 30 % of a step, a step takes 30 % longer: all of them wait for it.
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from bench.stragglers.real_plan import OWN_S, Episode

ACROSS = 1.5
"""Of a gradient, what crosses the cable in one direction."""

PACE_STEPS = 30
"""Of the newest healthy ones: how long a step takes on this machine as it is now."""

QUEUES_BYTES, DROPS_BYTES = 16 << 20, 32 << 10
"""How much may wait at a limited cable before more is dropped. Either all of a gradient that is on
its way, or less than what the kernel lets a connection have waiting in its own node's queue (some
100 kB here: with that much room nothing is ever dropped). Links slow down in both ways."""


@dataclass(frozen=True)
class Limit:
    """What the cable lets through."""

    bits_per_s: int
    queue_bytes: int


@dataclass
class SlowCable:
    """Follows the job from step to step."""

    episodes: Sequence[Episode]
    gradient_bytes: int
    _paces_s: deque[float] = field(default_factory=lambda: deque(maxlen=PACE_STEPS))
    _before: tuple[int, float] | None = None

    def at(self, step: int, now_s: float) -> Limit | None:
        """What holds from now on; None: it is as quick as ever. The fault comes a little late, by
        what a standing takes, and lasts as much longer."""
        number = next((n for n, e in enumerate(self.episodes) if e.since <= step < e.until), None)
        if number is None:
            self._learn(step, now_s)
            return None
        self._before = None
        more_s = self.episodes[number].slowdown * self.usual_s
        bits_per_s = round(8 * ACROSS * self.gradient_bytes / more_s)
        return Limit(bits_per_s, DROPS_BYTES if drops(number) else QUEUES_BYTES)

    @property
    def usual_s(self) -> float:
        """A step's length while the cable is well."""
        return statistics.median(self._paces_s) if self._paces_s else OWN_S

    def _learn(self, step: int, now_s: float) -> None:
        if self._before is not None and step > self._before[0]:
            self._paces_s.append((now_s - self._before[1]) / (step - self._before[0]))
        self._before = (step, now_s)


def drops(number: int) -> bool:
    """Whether the limited cable drops packets in this episode; else it keeps them waiting."""
    return number % 2 == 1
