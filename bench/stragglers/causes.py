"""Is the cause of a slowness named rightly? Simulated jobs, one trouble each, unclear signals."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from bench.benchmark import Sample, Task
from bench.stragglers.cause_cases import CAUSES, HELD_OUT, Case, draw
from bench.stragglers.cause_figures import cause_figures
from bench.stragglers.cause_names import CAUSES_ROW, NOBODY
from bench.stragglers.judged import standings
from bench.stragglers.noisy_job import NoisyJob
from bench.stragglers.section import Section
from holdfast_sidecar.records.steps import SlowCause, Slowness, SlownessReport

CASES = 60
QUICK_CASES = 6


def tasks(quick: bool) -> list[Task]:
    """Some cases of each cause."""
    count = QUICK_CASES if quick else CASES
    return [
        Task(CAUSES_ROW, f"{CAUSES_ROW}/{cause.value}", partial(measure, cause, count))
        for cause in CAUSES
    ]


def measure(cause: SlowCause, count: int, kind: str = HELD_OUT) -> list[Sample]:
    """A row of the confusion matrix, case by case."""
    return [judge(draw(cause, kind, number)) for number in range(count)]


def judge(case: Case) -> Sample:
    """Let the job run, and read what is said of it at the end."""
    job = NoisyJob(case)
    standing, first = None, None
    for standing in standings(job, case.steps, job.findings()):
        if first is None and _about(standing, case):
            first = standing.step
    slow = _about(standing, case) if standing is not None else None
    since = case.scenario.faults[0].since
    others = [] if standing is None else [one for one in standing.slow if one is not slow]
    return {
        "cause": case.cause.value,
        "kind": case.kind,
        "seed": case.seed,
        "ranks": case.scenario.layout.ranks,
        "sigma": round(case.scenario.sigma, 4),
        "slowdown": round(case.scenario.faults[0].slowdown, 3),
        "second": case.second.value if case.second else "",
        "told": slow.cause.value if slow else NOBODY,
        "node": case.node,
        "told_node": slow.node if slow else "",
        "steps": None if first is None else first - since + 1,
        "others": [f"{one.cause.value} {one.ranks[:4]}" for one in _strangers(others, case)],
    }


def _about(standing: SlownessReport, case: Case) -> Slowness | None:
    """What is said of the case's ranks; of several things the dearest."""
    sick = {rank for fault in case.scenario.faults for rank in fault.ranks}
    concerned = [one for one in standing.slow if sick & set(one.ranks)]
    return max(concerned, key=lambda one: one.gain, default=None)


def _strangers(others: Sequence[Slowness], case: Case) -> list[Slowness]:
    """Those that are said of ranks which are well."""
    sick = {rank for fault in case.scenario.faults for rank in fault.ranks}
    return [one for one in others if not sick & set(one.ranks)]


SECTION = Section((CAUSES_ROW,), tasks, cause_figures)
