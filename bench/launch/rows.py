"""The rows of `bench launch`, in which order they are measured, and how often.

Contestants take turns within a round and rounds differ in who comes first, so that a machine that
gets slower with time slows all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from bench.benchmark import Benchmark, Sample, Task
from bench.launch import hooks_cost, hooks_paired, per_step, rendezvous, sidecar_cost
from bench.launch.contestants import HOLDFAST, NVRX, TORCHRUN, TORCHRUN_OWN_STORE, Contestant
from bench.launch.faults import NODE_REPLACED, NODE_SHRUNK, SIGKILL, SIGSTOP, Fault
from bench.launch.goals import figures
from bench.launch.names import ADAMW, HOOKS_PAIRED, SGD
from bench.launch.recovery import Case, measure, measure_staggered

T = TypeVar("T")

PEERS = (TORCHRUN, TORCHRUN_OWN_STORE, NVRX)

ROUNDS = 5
KILLS_PER_ROUND = 2
"""Of Holdfast, with each of two optimizers: 20 in 5 rounds."""

QUICK_ROUNDS = {SIGKILL.row: 2, SIGSTOP.row: 2, NODE_REPLACED.row: 1, NODE_SHRUNK.row: 1}
"""What fits into 5 minutes."""

LIMITS_S = {
    # As shipped, torchrun recovered within 12 s or not within 60: longer waiting finds no more.
    SIGKILL.row: 20.0,
    # 5 s of group timeout and 30 s of waiting for a stopped process, then a start.
    SIGSTOP.row: 60.0,
    # 15 s until a dead agent's keep-alive has lapsed, then a start.
    NODE_REPLACED.row: 35.0,
    # The same, and 30 s of last call.
    NODE_SHRUNK.row: 65.0,
}
HOLDFAST_LIMIT_S = 30.0


def tasks(quick: bool) -> list[Task]:
    """Everything to measure, the most important first."""
    return [
        *_kills(ADAMW, quick),
        *_kills(SGD, quick),
        _one("hooks-cost", hooks_cost.measure),
        *hooks_paired.tasks(quick),
        _one("sidecar", sidecar_cost.measure),
        *_rendezvous(quick),
        *_disturbances(SIGSTOP, quick, waited_out=(TORCHRUN, TORCHRUN_OWN_STORE)),
        *_disturbances(NODE_REPLACED, quick, waited_out=()),
        *_disturbances(NODE_SHRUNK, quick, waited_out=PEERS),
        *([] if quick else _per_step()),
    ]


def _rounds(fault: Fault, quick: bool) -> range:
    return range(QUICK_ROUNDS[fault.row] if quick else ROUNDS)


def _kills(optimizer: str, quick: bool) -> list[Task]:
    """Peers once per round, Holdfast several times, the later ones as in rounds of their own."""
    found = []
    for number in _rounds(SIGKILL, quick):
        again = range(1 if quick else KILLS_PER_ROUND)
        own = [_case(SIGKILL, HOLDFAST, optimizer, number + ROUNDS * time) for time in again]
        peers = [] if quick else [_case(SIGKILL, c, optimizer, number) for c in PEERS]
        found += [_task(case) for case in _turned([*peers, *own], number)]
    return found


def _disturbances(fault: Fault, quick: bool, waited_out: Sequence[Contestant]) -> list[Task]:
    """One task per contestant, but one for all of those whose recovery is mostly waiting."""
    found = []
    for number in _rounds(fault, quick):
        field = [HOLDFAST] if quick else [c for c in (*PEERS, HOLDFAST) if c not in waited_out]
        found += [_task(_case(fault, c, ADAMW, number)) for c in _turned(field, number)]
        if waited_out and not quick:
            cases = [_case(fault, c, ADAMW, number) for c in _turned(waited_out, number)]
            key = f"{fault.row}/waited out/{number}"
            found.append(Task(fault.row, key, partial(measure_staggered, cases)))
    return found


def _rendezvous(quick: bool) -> list[Task]:
    """Both sizes, Holdfast's and torch's own."""
    return [
        Task(f"rendezvous-{nodes}", f"rendezvous-{nodes}/{name}", partial(measure_it, nodes))
        for nodes in (2, 64)
        for name, measure_it in rendezvous.CONTESTANTS
        if not quick or name == HOLDFAST.name
    ]


def _per_step() -> list[Task]:
    """Launches in turn; every ratio is to the bare launch of the same round."""
    return [
        Task(
            per_step.ROW,
            f"{per_step.ROW}/{contestant.name}/{number}",
            partial(_listed, partial(per_step.measure, contestant, number)),
        )
        for number in range(ROUNDS)
        for contestant in _turned(per_step.CONTESTANTS, number)
    ]


def _one(row: str, measured: Callable[[], list[Sample]]) -> Task:
    return Task(row, row, measured)


def _task(case: Case) -> Task:
    key = f"{case.fault.row}/{case.optimizer}/{case.contestant.name}/{case.round}"
    return Task(case.fault.row, key, partial(_listed, partial(measure, case)))


def _case(fault: Fault, contestant: Contestant, optimizer: str, number: int) -> Case:
    limit_s = HOLDFAST_LIMIT_S if contestant is HOLDFAST else LIMITS_S[fault.row]
    return Case(fault, contestant, optimizer, number, limit_s)


def _turned(field: Sequence[T], number: int) -> list[T]:
    start = number % len(field)
    return [*field[start:], *field[:start]]


def _listed(measured: Callable[[], Sample]) -> list[Sample]:
    return [measured()]


BENCHMARK = Benchmark(
    name="launch",
    rows=(
        SIGKILL.row,
        "hooks-cost",
        HOOKS_PAIRED,
        "sidecar",
        "rendezvous-2",
        "rendezvous-64",
        SIGSTOP.row,
        NODE_REPLACED.row,
        NODE_SHRUNK.row,
        per_step.ROW,
    ),
    tasks=tasks,
    figures=figures,
)
