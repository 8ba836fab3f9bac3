"""The rows of `bench detection`, in which order they are measured, and how often."""

from __future__ import annotations

from bench.benchmark import Benchmark, Task
from bench.detection import death, everywhere, hangs, heartbeats, hot_path, node_loss, quiet
from bench.detection.goals import figures
from bench.detection.hang_names import HANGS, QUIET
from bench.detection.names import DEATH, EVERYWHERE, HOT_PATH
from bench.detection.presence_names import HEARTBEATS, NODE_LOSS

PARTS = (
    death.tasks,
    everywhere.tasks,
    hangs.tasks,
    node_loss.tasks,
    hot_path.tasks,
    heartbeats.tasks,
    quiet.tasks,
)
"""Per row: its tasks, given whether to be quick; the most important row first."""


def tasks(quick: bool) -> list[Task]:
    """Everything to measure."""
    return [task for part in PARTS for task in part(quick)]


BENCHMARK = Benchmark(
    name="detection",
    rows=(DEATH, EVERYWHERE, HANGS, NODE_LOSS, HOT_PATH, HEARTBEATS, QUIET),
    tasks=tasks,
    figures=figures,
)
