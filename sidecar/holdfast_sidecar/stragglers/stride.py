"""How many steps a block has: the same on every node, without a word between them. Pure.

Nodes see the same step times, but for their noise; where two differ by a power of two all the same,
who puts the lines together takes the longer blocks.
"""

from __future__ import annotations

import math

LEAST_BLOCK_S = 0.1
"""Reports are written every 0.3 s: three blocks in each are as fine as anybody can follow, and a
handful of them lies within the ten steps in which somebody slow has to be found."""

RANKS_PER_S = 4096.0
"""Lines that a leader can take in at a twentieth of a core: with more ranks than that a block
lasts longer than a second."""

CHANGE = 4
"""A pace at the edge between two strides would have them change with every hiccup; a job whose
steps became four times as long does something else than before."""

LONGEST = 1 << 16
"""Steps of microseconds are no steps of training, and their times are not known well enough."""


def stride_for(step_s: float, world_size: int) -> int:
    """The smallest power of two that makes a block last long enough."""
    block_s = max(LEAST_BLOCK_S, world_size / RANKS_PER_S)
    if step_s * LONGEST <= block_s:
        return LONGEST
    return int(2 ** max(0, math.ceil(math.log2(block_s / step_s))))


def next_stride(stride: int, step_s: float, world_size: int) -> int:
    """The stride in force, given the one so far; 0: there was none."""
    wanted = stride_for(step_s, world_size)
    keeps = stride and wanted < CHANGE * stride and stride < CHANGE * wanted
    return stride if keeps else wanted
