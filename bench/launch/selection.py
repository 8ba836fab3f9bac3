"""Picking samples: whose, of which row and job, and what they measured. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from bench.benchmark import Sample

BACK = "every_rank_stepping_s"
"""Seconds from the fault until every rank has stepped again."""


def of(
    samples: Sequence[Sample], row: str, contestant: str, job: str | None = None
) -> list[Sample]:
    """Samples of this row and contestant (and job)."""
    return [
        sample
        for sample in samples
        if sample["row"] == row
        and sample["contestant"] == contestant
        and job in (None, sample.get("job"))
    ]


def values(
    samples: Sequence[Sample], row: str, contestant: str, measure: str, job: str | None = None
) -> list[float]:
    """What they measured, where they did."""
    found = (sample.get(measure) for sample in of(samples, row, contestant, job))
    return [value for value in found if value is not None]


def fastest(samples: Sequence[Sample], row: str, peers: Sequence[str], job: str) -> list[float]:
    """Recovery times of the peer with the smallest median; none unless all peers were run."""
    if not all(of(samples, row, peer, job) for peer in peers):
        return []
    times = [values(samples, row, peer, BACK, job) for peer in peers]
    return min((each for each in times if each), key=statistics.median, default=[])
