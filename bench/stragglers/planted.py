"""What a planted fault does to a rank's step, and to what its node tells of it."""

from __future__ import annotations

import numpy
from numpy.typing import NDArray

from bench.stragglers.scenario import Fault
from holdfast_sidecar.records.steps import SlowCause

Array = NDArray[numpy.float64]
Columns = dict[str, Array]
"""Name of a field -> one value per rank."""

SHARES = {"data": 0.03, "transfer": 0.01, "forward": 0.31, "backward": 0.57, "optimizer": 0.05}
"""Of own time; the rest is `other`."""
COMPUTE = ("transfer", "forward", "backward", "optimizer")
EXCHANGE = 0.15
"""Of own time: what a step spends in collectives when nobody is late."""
QUADRATIC = 0.25
"""Of what grows with work, the part that grows with the squares of lengths."""
TOKENS = 8192
GROWS = 0.9
"""Of what is computed, the part that grows with work."""

SIGNALS = {
    SlowCause.STORAGE: "storage_permille",
    SlowCause.CPU_QUOTA: "throttled_permille",
    SlowCause.CPU_CONTENTION: "queued_permille",
    SlowCause.MEMORY_PRESSURE: "faults_per_s",
}
"""Cause -> where its node shows it."""

ELSEWHERE = (SlowCause.LINK, SlowCause.UNEVEN_WORK)
"""A link shows in waits, more work before any part of a step is measured."""

PAUSES = (SlowCause.EVALUATION, SlowCause.SAVING)
"""Between steps, while all others wait."""


def give_more(fault: Fault, columns: Columns) -> None:
    """More work for the fault's ranks, such that their own time grows by its slowdown."""
    computing = GROWS * sum(SHARES[name] for name in COMPUTE)
    for name in ("tokens", "squares"):
        columns[name][list(fault.ranks)] *= 1.0 + fault.slowdown / computing


def strike(fault: Fault, parts: Columns, columns: Columns, step_us: float) -> None:
    """One fault in one step; in place."""
    who = list(fault.ranks)
    more = fault.slowdown * step_us * fault.every
    if fault.cause in (SlowCause.DATA_LOADING, SlowCause.STORAGE):
        parts["data"][who] += more
    elif fault.cause is SlowCause.GPU_LINK:
        parts["transfer"][who] += more * columns["tokens"][who]
    elif fault.cause is SlowCause.COLLECTOR:
        parts["forward"][who] += more
        columns["collector"][who] += more
    elif fault.cause is SlowCause.RECOMPILATION:
        columns["compiled"][who] = 1.0
        columns["lost"][who] += more
    elif fault.cause in PAUSES:
        columns["lost"][who] += more
        columns["evaluated"][who] += more * (fault.cause is SlowCause.EVALUATION)
    elif fault.cause not in ELSEWHERE:
        _slow_down(who, parts, fault.slowdown * fault.every)
    _show(fault, who, columns)


def _show(fault: Fault, who: list[int], columns: Columns) -> None:
    if fault.cause in (SlowCause.GPU_CLOCK, SlowCause.GPU_POWER):
        columns["clock_permille"][who] /= 1.0 + fault.slowdown
    name = SIGNALS.get(fault.cause)
    if name == "faults_per_s":
        columns[name][who] += 3000.0
    elif name == "storage_permille":
        columns[name][who] += 600.0
    elif name is not None:
        columns[name][who] += 1000.0 * fault.slowdown / (1.0 + fault.slowdown + EXCHANGE)


def _slow_down(who: list[int], parts: Columns, slowdown: float) -> None:
    """All of the computing takes longer, by that part of a usual own time where work is usual."""
    computing = sum(SHARES[name] for name in COMPUTE)
    for name in COMPUTE:
        parts[name][who] *= 1.0 + slowdown / computing
