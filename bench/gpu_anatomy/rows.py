"""The rows of `bench gpu-anatomy`: what timing a step by the GPU's own clock takes from it.

On a machine without a GPU every figure is "not run".
"""

from __future__ import annotations

from bench.benchmark import Benchmark, Task
from bench.gpu_anatomy import events, training
from bench.gpu_anatomy.goals import figures
from bench.gpu_anatomy.names import EVENTS, TRAINING


def tasks(quick: bool) -> list[Task]:
    """Everything to measure."""
    return [*events.tasks(quick), *training.tasks(quick)]


BENCHMARK = Benchmark(name="gpu-anatomy", rows=(EVENTS, TRAINING), tasks=tasks, figures=figures)
