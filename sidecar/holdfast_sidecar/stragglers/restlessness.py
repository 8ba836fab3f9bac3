"""Whose own times vary from step to step, by themselves and not beside others': of a few ranks one
that does makes all seem to, as they are compared with it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from holdfast_sidecar.stragglers.noise import MAD_TO_SIGMA

KEPT = 32
"""Frames."""

FEWEST = 6

MOST_RANKS = 8
"""Of more, the median of the others is nobody's in particular."""


class Restlessness:
    """Of one role's ranks."""

    def __init__(self) -> None:
        self._times: dict[int, deque[float]] = {}

    def take(self, ranks: Sequence[int], own_us: Sequence[float]) -> None:
        """One frame: own times, work taken into account."""
        if len(ranks) > MOST_RANKS:
            self._times.clear()
            return
        before = self._times
        self._times = {rank: before.get(rank) or deque(maxlen=KEPT) for rank in ranks}
        for rank, us in zip(ranks, own_us, strict=True):
            self._times[rank].append(math.log(max(us, 1.0)))

    def beyond(self, least: float) -> Mapping[int, float]:
        """Rank -> by which part its times vary, where that is more than so much."""
        known = {rank: _varies(past) for rank, past in self._times.items() if len(past) > FEWEST}
        return {rank: sigma for rank, sigma in known.items() if sigma > least}


def _varies(logs: Iterable[float]) -> float:
    sizes = sorted(abs(after - before) for before, after in pairwise(logs))
    return math.expm1(MAD_TO_SIGMA * sizes[len(sizes) // 2] / math.sqrt(2.0))
