"""The rows of `bench checkpoint`, in which order they are measured, and how often."""

from __future__ import annotations

from functools import partial

from bench.benchmark import Benchmark, Task
from bench.checkpoint import blocked, in_flight, loading, lost_work
from bench.checkpoint.goals import figures
from bench.checkpoint.names import (
    ASYNC,
    BLOCKED,
    COMPUTING,
    COPY,
    DCP_PROCESS,
    DCP_THREAD_CACHED,
    HOLDFAST,
    IN_FLIGHT,
    LOAD,
    LOST_NODE,
    LOST_RANK,
    SAVERS,
    SLEEPING,
    SYNC,
)

ROUNDS = 9
WRITES = 3
"""Of each contestant beside each kind of step: a niced write takes half a minute where all cores
compute, and the medians are over hundreds of steps."""
LOADS = 5
KILLS = 20
NODES_LOST = 3


def tasks(quick: bool) -> list[Task]:
    """Everything to measure, the most important first."""
    savers = (COPY,) if quick else SAVERS
    writers = (HOLDFAST,) if quick else (HOLDFAST, DCP_PROCESS, DCP_THREAD_CACHED)
    rounds, writes, kills = (5, 1, 5) if quick else (ROUNDS, WRITES, KILLS)
    return [
        Task(BLOCKED, BLOCKED, partial(blocked.measure, savers, rounds)),
        *(
            Task(
                IN_FLIGHT, f"{IN_FLIGHT}/{kind}", partial(in_flight.measure, kind, writers, writes)
            )
            for kind in (SLEEPING, COMPUTING)
        ),
        Task(LOAD, LOAD, partial(loading.measure, 2 if quick else LOADS)),
        Task(LOST_RANK, LOST_RANK, partial(lost_work.lose_ranks, kills)),
        *(
            Task(
                LOST_NODE,
                f"{LOST_NODE}/{peer}/{number}",
                partial(lost_work.lose_node, peer, number),
            )
            for number in range(1 if quick else NODES_LOST)
            for peer in (ASYNC, SYNC)
        ),
    ]


BENCHMARK = Benchmark(
    name="checkpoint",
    rows=(BLOCKED, IN_FLIGHT, LOAD, LOST_RANK, LOST_NODE),
    tasks=tasks,
    figures=figures,
)
