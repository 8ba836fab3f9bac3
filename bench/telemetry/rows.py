"""The rows of `bench telemetry`, in which order they are measured, and how often."""

from __future__ import annotations

from functools import partial

from bench.benchmark import Benchmark, Task
from bench.telemetry import cost, scrape, stories, wedged, xid
from bench.telemetry.goals import figures
from bench.telemetry.names import ALONE, COST, SCRAPE, STORIES, WEDGED, WITH_RANKS, XID

COST_ROUNDS = 3
XID_ROUNDS = 4
"""Of fifty each, in a sidecar of its own."""
WEDGED_ROUNDS = 10


def tasks(quick: bool) -> list[Task]:
    """Everything to measure."""
    rounds, injected, hung = (1, 1, 2) if quick else (COST_ROUNDS, XID_ROUNDS, WEDGED_ROUNDS)
    turns = [(who, number) for number in range(rounds) for who in (ALONE, WITH_RANKS)]
    return [
        *(Task(COST, f"{COST} {who} {n}", partial(cost.measure, who)) for who, n in turns),
        *(Task(SCRAPE, f"{SCRAPE} {n}", scrape.measure) for n in range(rounds)),
        *(Task(XID, f"{XID} {n}", xid.measure) for n in range(injected)),
        *(Task(WEDGED, f"{WEDGED} {n}", wedged.measure) for n in range(hung)),
        Task(STORIES, STORIES, stories.measure),
    ]


BENCHMARK = Benchmark(
    name="telemetry",
    rows=(COST, SCRAPE, XID, WEDGED, STORIES),
    tasks=tasks,
    figures=figures,
)
