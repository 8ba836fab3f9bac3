"""Rows of simulated detection: slow ranks that are to be found, and healthy jobs."""

from __future__ import annotations

from functools import partial

from bench.benchmark import Sample, Task
from bench.stragglers import goals
from bench.stragglers.drawn import AFTER, HELD_OUT, healthy, with_fault
from bench.stragglers.followed import of_faults, of_health
from bench.stragglers.names import DETECTION, HEALTHY, SMALL
from bench.stragglers.scenario import Layout
from bench.stragglers.section import Section

JOBS = (160, 120, 80, 40, 16, 8, 4)
"""Of each of the held-out layouts, from 8 ranks to 4,096."""
QUICK_JOBS = (30, 20, 12, 6, 3, 2, 1)
SMALL_JOBS = 60
QUICK_SMALL_JOBS = 10

HEALTHY_JOBS = (
    (Layout(8), 50, 1000),
    (Layout(4, 2, 2), 20, 1000),
    (Layout(16, 4), 20, 1000),
    (Layout(16, 8, 4), 10, 900),
    (Layout(64, 8, 8), 4, 300),
)
"""Layout, jobs, steps of each: over 10^5 in all."""
QUICK_HEALTHY_JOBS = (
    (Layout(8), 8, 500),
    (Layout(4, 2, 2), 4, 500),
    (Layout(16, 4), 2, 500),
    (Layout(16, 8, 4), 1, 300),
)


def tasks(quick: bool) -> list[Task]:
    """One task per layout and row."""
    small = QUICK_SMALL_JOBS if quick else SMALL_JOBS
    return [
        *(
            Task(DETECTION, f"{DETECTION} {layout.name}", partial(_slow, layout, jobs))
            for layout, jobs in zip(HELD_OUT.layouts, QUICK_JOBS if quick else JOBS, strict=True)
        ),
        *(
            Task(SMALL, f"{SMALL} {layout.name}", partial(_slow, layout, small))
            for layout in HELD_OUT.small
        ),
        *(
            Task(HEALTHY, f"{HEALTHY} {layout.name}", partial(_well, layout, jobs, steps))
            for layout, jobs, steps in (QUICK_HEALTHY_JOBS if quick else HEALTHY_JOBS)
        ),
    ]


def _slow(layout: Layout, jobs: int) -> list[Sample]:
    scenarios = [with_fault(HELD_OUT, layout, number) for number in range(jobs)]
    return [of_faults(each, each.faults[0].since + AFTER) for each in scenarios]


def _well(layout: Layout, jobs: int, steps: int) -> list[Sample]:
    return [of_health(healthy(HELD_OUT, layout, n, steps), steps) for n in range(jobs)]


SECTION = Section((DETECTION, SMALL, HEALTHY), tasks, goals.detection)
