"""What it costs the leader to judge 4,096 ranks, a record a second each: reading lines as they
stand in reports, putting them together, judging. Processor time per simulated second."""

from __future__ import annotations

import resource
import time
from dataclasses import dataclass
from functools import partial

from bench.benchmark import Sample, Task
from bench.stragglers import goals
from bench.stragglers.names import AGGREGATE
from bench.stragglers.scenario import Fault, Layout, Scenario
from bench.stragglers.section import Section
from bench.stragglers.simulated_job import SimulatedJob
from holdfast_sidecar.records.slowness import Cause
from holdfast_sidecar.records.steps import spell
from holdfast_sidecar.stragglers.detector import Detector
from holdfast_sidecar.stragglers.frames import Frames
from holdfast_sidecar.stragglers.unread import Unread

RANKS = Layout(dp=64, tp=8, pp=8)
LINES_KEPT = 4
"""A report repeats each rank's latest few lines."""
WARM_UP_S = 20
MEASURED_S = 60
SLOW = Fault(Cause.COMPUTE, (777,), 0.3, since=WARM_UP_S + 10)


@dataclass
class Spent:
    """Processor seconds."""

    reading: float = 0.0
    judging: float = 0.0


def measure(lengths: float) -> list[Sample]:
    """A minute of a job whose work varies by `lengths`, after a warm-up."""
    scenario = Scenario(7, RANKS, tail=4.0, lengths=lengths, faults=(SLOW,))
    job, unread, frames, detector = SimulatedJob(scenario), Unread(), Frames(), Detector()
    places, spent = job.places(), Spent()
    expected, reports = frozenset(places), {rank: list[str]() for rank in places}
    found = 0
    for second, lines in enumerate(job.steps(WARM_UP_S + MEASURED_S)):
        for line in lines:
            reports[line.rank] = [*reports[line.rank][1 - LINES_KEPT :], spell(line)]
        if second == WARM_UP_S:
            spent = Spent()
        started = time.process_time()
        read = [line for texts in reports.values() for line in unread.take(texts)]
        now = time.process_time()
        spent.reading += now - started
        for frame in frames.take(read, expected):
            found += bool(detector.follow(frame, places, float(second)))
        spent.judging += time.process_time() - now
    return [
        {
            "lengths": lengths,
            "core_percent": 100.0 * (spent.reading + spent.judging) / MEASURED_S,
            "reading_percent": 100.0 * spent.reading / MEASURED_S,
            "seconds_in_which_it_was_told": found,
            "mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        }
    ]


def tasks(quick: bool) -> list[Task]:
    """With even and with varying work."""
    rounds = 1 if quick else 3
    return [
        Task(AGGREGATE, f"{AGGREGATE} {name} {n}", partial(measure, lengths))
        for n in range(rounds)
        for name, lengths in (("even", 0.0), ("varying", 0.4))
    ]


SECTION = Section((AGGREGATE,), tasks, goals.aggregate)
