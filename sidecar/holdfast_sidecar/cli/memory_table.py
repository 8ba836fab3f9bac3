"""Memory of ranks' devices, as a table for people and as data for scripts. Pure, except that paint
looks at the terminal."""

from __future__ import annotations

from typing import Any

from holdfast_sidecar.cli.table import BAD, paint, size, table
from holdfast_sidecar.performance.summary import SHOWN, shortened
from holdfast_sidecar.records.formatting import percent
from holdfast_sidecar.records.reports import Performance, RankSteps

LITTLE_ROOM = 0.05
"""Of a device: below it one longer sequence may end the job. torch's allocator asks for blocks of
2 to 20 MiB and more, and gives back what it keeps before it gives up, which costs steps."""


def memory_table(performance: Performance) -> str:
    """Of those ranks that train on a device; empty where none does."""
    having = [rank for rank in shortened(performance).ranks if rank.memory_total]
    if not having:
        return ""
    rows = [
        [
            str(rank.rank),
            rank.node,
            size(rank.memory_allocated),
            size(rank.memory_reserved),
            f"{size(rank.memory_peak)} of {size(rank.memory_total)}",
            _room(rank),
            percent(fragmentation(rank)),
            str(rank.memory_retries),
        ]
        for rank in having[:SHOWN]
    ]
    headings = ["rank", "node", "tensors", "reserved", "peak", "left", "fragmented", "retries"]
    return table(headings, rows)


def plain_memory(rank: RankSteps) -> dict[str, Any]:
    """One rank's device, with what is left at its worst and what the allocator keeps unused."""
    return {
        "rank": rank.rank,
        "node": rank.node,
        "total_bytes": rank.memory_total,
        "allocated_bytes": rank.memory_allocated,
        "reserved_bytes": rank.memory_reserved,
        "peak_bytes": rank.memory_peak,
        "headroom_bytes": headroom(rank),
        "fragmentation": fragmentation(rank),
        "retries": rank.memory_retries,
    }


def headroom(rank: RankSteps) -> int:
    """Bytes that were left of its device when it needed most."""
    return max(rank.memory_total - max(rank.memory_peak, rank.memory_reserved), 0)


def fragmentation(rank: RankSteps) -> float:
    """Of what the allocator holds, the part that no tensor is in."""
    if not rank.memory_reserved:
        return 0.0
    return max(1 - rank.memory_allocated / rank.memory_reserved, 0.0)


def _room(rank: RankSteps) -> str:
    left = headroom(rank)
    return paint(size(left), BAD) if left < LITTLE_ROOM * rank.memory_total else size(left)
