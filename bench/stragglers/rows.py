"""The rows of `bench stragglers`: sections, each with rows, tasks and figures of its own."""

from __future__ import annotations

from collections.abc import Sequence

from bench.benchmark import Benchmark, Sample, Task
from bench.figures import Figure
from bench.stragglers import aggregate, causes, detection, own_price, real, seldom, trace_price

SECTIONS = (
    detection.SECTION,
    seldom.SECTION,
    causes.SECTION,
    aggregate.SECTION,
    own_price.SECTION,
    real.SECTION,
    trace_price.SECTION,
)


def tasks(quick: bool) -> list[Task]:
    """Everything to measure."""
    return [task for section in SECTIONS for task in section.tasks(quick)]


def figures(samples: Sequence[Sample]) -> list[Figure]:
    """What the samples come to."""
    return [figure for section in SECTIONS for figure in section.figures(samples)]


BENCHMARK = Benchmark(
    name="stragglers",
    rows=tuple(row for section in SECTIONS for row in section.rows),
    tasks=tasks,
    figures=figures,
)
