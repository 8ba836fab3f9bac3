"""Which other nodes a node sends packets to: few, and so that each node is reached by as many."""

from __future__ import annotations

from collections.abc import Collection, Iterable

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


def deputies(own: str, about: str, nodes: Collection[str], count: int = 2) -> tuple[str, ...]:
    """Through whom a node is asked besides: those that follow it around the ring of names."""
    ring = sorted({*nodes, about} - {own})
    start = ring.index(about) + 1
    others = [name for name in (*ring[start:], *ring[: start - 1]) if name in nodes]
    return tuple(name for name in others if name != about)[:count]
