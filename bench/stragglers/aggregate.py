"""What it costs the leader to judge 4,096 ranks, a record a second each: reading lines as they
stand in the reports of 512 nodes, putting them together, judging who is slow, why, and what it
costs. Processor time per simulated second, the decoding of reports left out: they are read anyhow.
"""

from __future__ import annotations

import multiprocessing
import resource
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial

from bench.benchmark import Sample, Task
from bench.stragglers import goals
from bench.stragglers.names import AGGREGATE
from bench.stragglers.scenario import Fault, Layout, Scenario
from bench.stragglers.section import Section
from bench.stragglers.simulated_job import SimulatedJob
from holdfast_sidecar.performance.slowness import Judging
from holdfast_sidecar.performance.stragglers.efficiency import EfficiencyWatch
from holdfast_sidecar.performance.stragglers.judge import Judge
from holdfast_sidecar.performance.stragglers.placement import RankPlace
from holdfast_sidecar.records.findings import Moment
from holdfast_sidecar.records.reports import NodeReport, RankReport
from holdfast_sidecar.records.steps import SlowCause, StepLine, spell
from holdfast_sidecar.wiring import collect_seldom

RANKS = Layout(dp=64, tp=8, pp=8)
LINES_KEPT = 4
"""A report repeats each rank's latest few lines."""
WARM_UP_S = 20
MEASURED_S = 60
ATTEMPT = 0
CASES = {
    "even work": Scenario(7, RANKS, tail=4.0),
    "work varies": Scenario(8, RANKS, tail=4.0, lengths=0.4),
    "one is slow": Scenario(
        9, RANKS, tail=4.0, faults=(Fault(SlowCause.COMPUTE, (777,), 0.3, since=WARM_UP_S - 10),)
    ),
}


def measure(name: str) -> list[Sample]:
    """In a process of its own, in whose memory there is nothing of the case before."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max_workers=1, mp_context=context) as process:
        return process.submit(judge, name).result()


def judge(name: str) -> list[Sample]:
    """A minute of a job, after a warm-up."""
    collect_seldom()  # as each sidecar does
    job = SimulatedJob(CASES[name])
    judging = Judging(lambda: Judge(EfficiencyWatch()))
    judging.turn_to(ATTEMPT)
    reports, spent, told = _reports(job.places()), 0.0, 0
    for second, lines in enumerate(job.steps(WARM_UP_S + MEASURED_S)):
        reports = _with_lines(reports, lines)
        moment = Moment(float(second), 1.7e9 + second, "leader")
        started = time.process_time()
        judging.gathering.hear_others(reports, "leader", ATTEMPT)
        judging.gathering.look({})
        standing = judging.follow(moment)
        if second >= WARM_UP_S:
            spent += time.process_time() - started
            told += bool(standing and standing.slow)
    judged = judging.standing.step if judging.standing else 0
    if judged != WARM_UP_S + MEASURED_S:
        raise AssertionError(f"only {judged} steps were judged")
    return [
        {
            "case": name,
            "core_percent": 100.0 * spent / MEASURED_S,
            "seconds_with_somebody_slow": told,
            "mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        }
    ]


def _reports(places: Mapping[int, RankPlace]) -> dict[str, NodeReport]:
    ranks: dict[str, list[RankReport]] = {}
    for place in places.values():
        layout = " ".join(f"{d}={at}/{place.shape[d]}" for d, at in place.coordinate.items())
        groups = [f"{g.title}/{g.digest}/{g.size}" if g else "" for g in place.groups]
        report = RankReport(
            place.rank, 0, 1, 0, "backward", 0.0, 1.0, 0.8, layout=layout, groups=groups
        )
        ranks.setdefault(place.node, []).append(report)
    return {
        node: NodeReport(node, "", 0, 0, 0, attempt=ATTEMPT, launcher_alive=True, ranks=of_node)
        for node, of_node in ranks.items()
    }


def _with_lines(
    reports: Mapping[str, NodeReport], lines: Sequence[StepLine]
) -> dict[str, NodeReport]:
    """Each node's report a second later."""
    texts = {line.rank: spell(line) for line in lines}
    told = {}
    for node, report in reports.items():
        ranks = [rank.rank for rank in report.ranks]
        kept = report.steps[-(LINES_KEPT - 1) * len(ranks) :]
        told[node] = replace(report, steps=[*kept, *(texts[rank] for rank in ranks)])
    return told


def tasks(quick: bool) -> list[Task]:
    """Each case."""
    return [
        Task(AGGREGATE, f"{AGGREGATE} {name} {number}", partial(measure, name))
        for number in range(1 if quick else 3)
        for name in CASES
    ]


SECTION = Section((AGGREGATE,), tasks, goals.aggregate)
