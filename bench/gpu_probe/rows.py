"""The rows of `bench gpu-probe`: what this machine's GPU driver tells, and what each call takes.

On a machine without a GPU every figure is "not run".
"""

from __future__ import annotations

from bench.benchmark import Benchmark, Task
from bench.gpu_probe import poll, signals
from bench.gpu_probe.goals import figures
from bench.gpu_probe.names import POLL, SIGNALS


def tasks(quick: bool) -> list[Task]:
    """Everything to measure."""
    return [*signals.tasks(quick), *poll.tasks(quick)]


BENCHMARK = Benchmark(name="gpu-probe", rows=(SIGNALS, POLL), tasks=tasks, figures=figures)
