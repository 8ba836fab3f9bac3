"""What uneven steps add to a group's waiting where a frame has several of them. Pure.

Whoever arrives last in a step waits for the exchange alone. A frame has but the means of its steps:
where another member is last in each of them, even the one who waited least waited for others, and
the least of the means lies above the mean of the least.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence

UNSURE = 3.0
"""Deviations of an estimate from a few frames of a few members, by which they may be more uneven
than it says: it is looked at in each frame, and one that seems even is enough to blame a link."""

Told = tuple[int, Mapping[int, float]]
"""Of how many steps a frame is, and the own times of all ranks in it."""


def added_us(
    frames: Iterable[Told], members: Sequence[int], size: int, unsure: float = 0.0
) -> float:
    """In the mean of these frames. members: some of the group's `size` ones. unsure: 0 says what
    is likely, more what it may be.

    The largest of n values lies (n - 1) / sqrt(2n - 1) deviations above their mean at most, however
    they are distributed (Hartley and David 1954). Of single steps that deviation is sqrt(steps)
    times what the frames' means show, and as much as those differ is no waiting for others.
    """
    squares, known = 0.0, 0
    for steps, own_us in frames:
        told = [own for rank in members if (own := own_us.get(rank)) is not None]
        if len(told) > 1:
            squares += (math.sqrt(steps) - 1) ** 2 * math.fsum(_off(told))
            known += len(told) - 1
    if not squares:
        return 0.0
    farthest = (size - 1) / math.sqrt(2 * size - 1)
    return farthest * math.sqrt(squares / known) * (1 + unsure / math.sqrt(2 * known))


def _off(told: Sequence[float]) -> Iterable[float]:
    """Squares of how far each is from their mean."""
    middle = statistics.fmean(told)
    return ((one - middle) ** 2 for one in told)
