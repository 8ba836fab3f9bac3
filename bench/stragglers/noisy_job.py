"""A simulated job whose signals are as unclear as real ones.

Healthy ranks have all of them too, some as loudly as the sick one; a fault's own signal says more
or less than the time it takes; storage and pressure are a node's, and so all of its ranks'.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy
from numpy.typing import NDArray

from bench.stragglers.cause_cases import Case
from bench.stragglers.planted import PAUSES, Array, Columns
from bench.stragglers.scenario import Fault
from bench.stragglers.simulated_job import SimulatedJob
from holdfast_sidecar.records.findings import Finding, Kind
from holdfast_sidecar.records.steps import SlowCause

LOUD = 0.15
"""Of the nodes: all their ranks have one signal as loudly as a sick one, and are well."""

JITTER = 0.2
"""From step to step, of each signal (of its logarithm)."""


class NoisyJob(SimulatedJob):
    """The job of a case."""

    def __init__(self, case: Case) -> None:
        super().__init__(case.scenario)
        self.case = case
        self._chance = numpy.random.default_rng(case.seed + 7)
        self._calm = self._background()
        self._fault_s = float(10 ** self._chance.uniform(-3.7, -2.3))
        self._pressure = float(self._chance.uniform(0.5, 1.4))
        self._has_clock = case.cause is not SlowCause.GPU_CLOCK or not case.is_found
        self._has_clock |= bool(self._chance.random() < 0.8)

    def _background(self) -> Columns:
        """What each rank's signals are when it is well; some nodes' are loud."""
        count = self.layout.ranks
        node = numpy.arange(count) // self.layout.ranks_per_node
        nodes = int(node.max()) + 1
        chance = self._chance
        calm: Columns = {
            "queued_permille": chance.lognormal(numpy.log(12), 0.7, nodes)[node],
            "throttled_permille": ((chance.random(nodes) < 0.2) * chance.uniform(5, 50, nodes))[
                node
            ],
            "storage_permille": chance.lognormal(numpy.log(40), 0.8, nodes)[node],
            "faults_per_s": chance.lognormal(numpy.log(1.5), 0.8, count),
            "clock_permille": numpy.clip(chance.normal(985, 6, count), 940, 1000),
            "collector": 0.004 * self.scenario.step_us * chance.lognormal(0, 0.4, count),
        }
        sick = self._sick_nodes()
        loud = {
            "queued_permille": 250.0,
            "throttled_permille": 180.0,
            "storage_permille": 450.0,
            "faults_per_s": 400.0,
            "clock_permille": -40.0,
        }
        for one in range(nodes):
            if one not in sick and chance.random() < LOUD:
                name = str(chance.choice(list(loud)))
                calm[name] = calm[name] + (node == one) * loud[name]
        return calm

    def _sick_nodes(self) -> set[int]:
        ranks = {r for fault in self.scenario.faults for r in fault.ranks}
        return {rank // self.layout.ranks_per_node for rank in ranks}

    def _columns(self, step: int) -> Columns:
        columns = super()._columns(step)
        for name, calm in self._calm.items():
            columns[name] = calm * self._jitter(0.005 if name == "clock_permille" else JITTER)
        for fault in self.scenario.faults:
            if fault.strikes(step):
                self._show(fault, columns)
                self._let_wait(fault, columns)
        self._wait_in_the_next_step(step, columns)
        for name in ("queued_permille", "throttled_permille", "storage_permille"):
            columns[name] = numpy.clip(columns[name], 0, 980)
        if not self._has_clock:
            columns["clock_permille"] = numpy.zeros(self.layout.ranks)
        return columns

    def _jitter(self, sigma: float) -> Array:
        drawn: Array = self._chance.lognormal(0.0, sigma, self.layout.ranks)
        return drawn

    def _show(self, fault: Fault, columns: Columns) -> None:
        who = list(fault.ranks)
        more = fault.slowdown * self.scenario.step_us * fault.every * self.case.tells
        share = 1000 * more / float(columns["total"].max())
        about = float(self._chance.lognormal(0.0, JITTER))
        if fault.cause is SlowCause.CPU_QUOTA:
            columns["throttled_permille"][who] += share * about
        elif fault.cause is SlowCause.CPU_CONTENTION:
            columns["queued_permille"][who] += share * about
        elif fault.cause is SlowCause.COLLECTOR:
            columns["collector"][who] += min(1.0, self.case.tells) * more / self.case.tells
        elif fault.cause in (SlowCause.GPU_CLOCK, SlowCause.GPU_POWER):
            columns["clock_permille"][who] /= 1 + fault.slowdown * self.case.tells / 0.94
        elif fault.cause is SlowCause.STORAGE:
            columns["storage_permille"][who] += share * about * self._pressure
        elif fault.cause is SlowCause.MEMORY_PRESSURE:
            pages = share / 1000 / self._fault_s
            columns["faults_per_s"][who] += pages * about
            columns["storage_permille"][who] += share * about * self._pressure

    def _let_wait(self, fault: Fault, columns: Columns) -> None:
        """The others wait for one that compiles, evaluates or saves."""
        if fault.cause in (SlowCause.RECOMPILATION, *PAUSES):
            others = self._but(fault.ranks)
            more = fault.slowdown * self.scenario.step_us * fault.every
            for name in ("total", "communicating", "wait_1"):
                columns[name][others] += more

    def _wait_in_the_next_step(self, step: int, columns: Columns) -> None:
        """Whose replicas are through with their exchange earlier than others is not kept by it, but
        by whom it meets next: its stage's neighbour, or the ranks of its tensor group."""
        slow = [
            f for f in self.scenario.faults if f.cause is SlowCause.LINK and f.dimension == "dp"
        ]
        slow = [fault for fault in slow if fault.strikes(step)]
        if slow:
            others = self._but([rank for fault in slow for rank in fault.ranks])
            more = slow[0].slowdown * self.scenario.step_us
            columns["wait_1"][others] -= more
            columns["wait_3" if self.layout.pp > 1 else "wait_2"][others] += more

    def _but(self, ranks: Sequence[int]) -> NDArray[numpy.bool_]:
        others = numpy.ones(self.layout.ranks, dtype=numpy.bool_)
        others[list(ranks)] = False
        return others

    def findings(self) -> list[Finding]:
        """What the nodes' detectors say: of the trouble, and of much else."""
        return [*_of_trouble(self.case), *_of_others(self)]


KINDS = {
    SlowCause.GPU_CLOCK: (Kind.GPU_THROTTLED, "gpu0-hot"),
    SlowCause.GPU_POWER: (Kind.GPU_THROTTLED, "gpu0-power"),
    SlowCause.GPU_LINK: (Kind.GPU_LINK_DEGRADED, "gpu0-pcie-width"),
    SlowCause.GPU_SHARED: (Kind.GPU_SHARED, "gpu0-pid77"),
    SlowCause.CPU_QUOTA: (Kind.CPU_THROTTLED, ""),
    SlowCause.MEMORY_PRESSURE: (Kind.MEMORY_PRESSURE, ""),
    SlowCause.STORAGE: (Kind.STORAGE_STALLED, "data"),
    SlowCause.LINK: (Kind.LINK_DEGRADED, "mlx5_0"),
}

ELSEWHERE = (
    (Kind.HOST_HOT, "coretemp"),
    (Kind.LINK_FLAPPING, "mlx5_1"),
    (Kind.STORAGE_SLOW, "write"),
    (Kind.MEMORY_PRESSURE, ""),
    (Kind.CPU_THROTTLED, ""),
    (Kind.GPU_THROTTLED, "gpu0-hot"),
    (Kind.GPU_SHARED, "gpu0-pid5"),
    (Kind.ECC_STORM, "gpu0"),
)
"""Each of them on some healthy node in one case of six."""

OF_GPUS = (Kind.GPU_THROTTLED, Kind.GPU_SHARED, Kind.GPU_LINK_DEGRADED, Kind.ECC_STORM)


def _of_trouble(case: Case) -> list[Finding]:
    known = KINDS.get(case.cause)
    if known is None or not case.is_found:
        return []
    return [_finding(known, case.node, case.scenario.faults[0].ranks[0])]


def _of_others(job: NoisyJob) -> list[Finding]:
    chance = random.Random(job.case.seed + 3)
    layout = job.layout
    sick = job._sick_nodes() if job.case.cause is not SlowCause.PIPELINE else set[int]()
    if job.case.cause is SlowCause.LINK:
        sick = {int(job.case.node.removeprefix("node"))}
    well = [rank for rank in range(layout.ranks) if rank // layout.ranks_per_node not in sick]
    found = []
    for one in ELSEWHERE:
        if well and chance.random() < 1 / 6:
            rank = chance.choice(well)
            found.append(_finding(one, f"node{rank // layout.ranks_per_node}", rank))
    return found


def _finding(what: tuple[Kind, str], node: str, rank: int) -> Finding:
    kind, which = what
    is_gpu = kind in OF_GPUS
    return Finding(
        kind=kind,
        node=node,
        since_unix_s=0.0,
        confidence=0.8,
        ranks=[rank] if is_gpu else [],
        evidence=[f"{kind.value} on {node}"],
        what=which,
        gpu=f"GPU-{rank}" if is_gpu else "",
    )
