"""Of how many steps the parts are measured: of all, unless they are so short that it would be
felt."""

from __future__ import annotations

STRETCH = 32
"""Steps after which it is decided anew how many are measured."""

MEASURED_EVERY_US = 2000
"""Measuring all of a step takes about 10 us: half a percent of this. Shorter steps are measured so
seldom that one of this much time is."""

MOST_PASSED_OVER = 64
"""One step of so many is measured however short they are."""


def sampled_every(mean_us: int, every: int) -> int:
    """The parts of every so manyth step are to be measured; a power of two, so that ranks which
    disagree still measure the same ones. every: what it is now, which stays where either will do.
    """
    while every < MOST_PASSED_OVER and mean_us * every < MEASURED_EVERY_US:
        every *= 2
    while every > 1 and mean_us * every >= 4 * MEASURED_EVERY_US:
        every //= 2
    return every
