"""What the whole anatomy of a step costs the rank that is watched: the rows `hot-path` of `bench
detection` and `hooks-paired` of `bench launch`, since their price is this benchmark's own.

A GPU's part of it has a benchmark to itself, `gpu-anatomy`; here it is told as not run.
"""

from __future__ import annotations

from collections.abc import Sequence

from bench.benchmark import Sample, Task
from bench.detection import hot_path
from bench.detection.hot_path_figures import hot_path_figures
from bench.detection.names import HOT_PATH
from bench.figures import Figure, at_most
from bench.gpu_anatomy.goals import MOST_SLOWER_PERCENT
from bench.launch import hooks_paired
from bench.launch.cost_figures import paired_figure
from bench.launch.names import HOOKS_PAIRED
from bench.stragglers.section import Section


def tasks(quick: bool) -> list[Task]:
    """The hooks alone, then a real step with them and without."""
    return [*hot_path.tasks(quick), *hooks_paired.tasks(quick)]


def figures(samples: Sequence[Sample]) -> list[Figure]:
    """Microseconds of a step, what a real step notices of them, and what is measured elsewhere."""
    gpu = "steps on a GPU slower with hooks (python -m bench gpu-anatomy)"
    return [
        *hot_path_figures(samples),
        paired_figure(samples),
        at_most(gpu, "%", None, MOST_SLOWER_PERCENT),
    ]


SECTION = Section(rows=(HOT_PATH, HOOKS_PAIRED), tasks=tasks, figures=figures)
