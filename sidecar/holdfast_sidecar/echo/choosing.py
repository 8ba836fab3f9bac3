"""Which other nodes a node sends packets to: few, and so that each node is reached by as many."""

from __future__ import annotations

from collections.abc import Iterable

FEWEST = 8
"""All of a small job: what is usual is told from several, and who is odd by several."""


def choose(own: str, nodes: Iterable[str]) -> tuple[str, ...]:
    """Those at distances 1, 2, 4, … around the ring of names (log2 of all of them), and the next
    ones until there are eight."""
    ring = sorted({own, *nodes})
    start, size = ring.index(own), len(ring)
    doubling = [2**power for power in range(size.bit_length()) if 2**power < size]
    following = [step for step in range(1, size) if step not in doubling]
    steps = [*doubling, *following[: max(0, FEWEST - len(doubling))]]
    return tuple(ring[(start + step) % size] for step in steps)
