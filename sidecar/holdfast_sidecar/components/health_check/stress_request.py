"""What a node's test is asked for, and what it answers: one line of JSON each on its pipes."""

from __future__ import annotations

from dataclasses import dataclass, field

CPU, GPU = "cpu", "cuda"

MATMUL, MEMORY = "matmul_flops_per_s", "memory_bytes_per_s"
ALL_REDUCE = "all_reduce_bytes_per_s"

PART_S = 1.0
"""For each of its parts: a GPU that is slowed down by heat or power shows it within a second of
full work, and a restart may have to wait for all of it."""


@dataclass(frozen=True)
class StressRequest:
    """What is to be tested, for whom."""

    asker_pid: int
    """The test ends with it."""
    device: str
    """`cpu` or `cuda`."""
    devices: int
    part_s: float = PART_S


@dataclass(frozen=True)
class Result:
    """What came of it; of one device, or of all."""

    error: str = ""
    """Why nothing came of it; empty: something did."""
    wrong: list[str] = field(default_factory=list)
    figures: dict[str, float] = field(default_factory=dict)
    model: str = ""
