"""The rows of `bench launch`, in which order they are measured, and how often.

Contestants take turns within a round and rounds differ in who comes first, so that a machine that
gets slower with time slows all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from bench.benchmark import Benchmark, Sample, Task
from bench.launch import hooks_cost, hooks_paired, per_step, rendezvous, sidecar_cost
from bench.launch.contestants import HOLDFAST, NVRX, TORCHRUN, TORCHRUN_OWN_STORE, Contestant
from bench.launch.faults import NODE_REPLACED, NODE_SHRUNK, SIGKILL, SIGSTOP, Fault
from bench.launch.goals import figures
from bench.launch.names import ADAMW, SGD
from bench.launch.recovery import Case, measure, measure_staggered

PEERS = (TORCHRUN, TORCHRUN_OWN_STORE, NVRX)

ROUNDS = 5
QUICK_ROUNDS = 2
KILLS_PER_ROUND = 2
"""Of Holdfast, with each of two optimizers: 20 in 5 rounds."""

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
    rounds = QUICK_ROUNDS if quick else ROUNDS
    return [
        *_kills(ADAMW, rounds, quick),
        *_kills(SGD, rounds, quick),
        _one("hooks-cost", hooks_cost.measure),
        _one("hooks-paired", hooks_paired.measure),
        _one("sidecar", sidecar_cost.measure),
        *rendezvous_tasks(quick),
        *_disturbances(SIGSTOP, rounds, quick, waited_out=(TORCHRUN, TORCHRUN_OWN_STORE)),
        *_disturbances(NODE_REPLACED, rounds, quick, waited_out=()),
        *_disturbances(NODE_SHRUNK, rounds, quick, waited_out=PEERS),
        *([] if quick else per_step_tasks(rounds)),
    ]


def _kills(optimizer: str, rounds: int, quick: bool) -> list[Task]:
    found = []
    for number in range(rounds):
        field = [HOLDFAST] * KILLS_PER_ROUND if quick else [*PEERS, *[HOLDFAST] * KILLS_PER_ROUND]
        for place, contestant in enumerate(_turned(field, number)):
            case = _case(SIGKILL, contestant, optimizer, number * KILLS_PER_ROUND + place)
            found.append(_task(case, f"{number}.{place}"))
    return found


def _disturbances(
    fault: Fault, rounds: int, quick: bool, waited_out: Sequence[Contestant]
) -> list[Task]:
    """One task per contestant, but one for all of those whose recovery is mostly waiting."""
    found = []
    for number in range(rounds):
        field = [HOLDFAST] if quick else [c for c in (*PEERS, HOLDFAST) if c not in waited_out]
        singles = [
            _task(_case(fault, contestant, ADAMW, number), str(number))
            for contestant in _turned(field, number)
        ]
        found += singles
        if waited_out and not quick:
            cases = [_case(fault, c, ADAMW, number) for c in _turned(waited_out, number)]
            key = f"{fault.row}/waited out/{number}"
            found.append(Task(fault.row, key, partial(measure_staggered, cases)))
    return found


def rendezvous_tasks(quick: bool) -> list[Task]:
    """Both sizes, Holdfast's and torch's own."""
    return [
        Task(f"rendezvous-{nodes}", f"rendezvous-{nodes}/{name}", partial(measure_it, nodes))
        for nodes in (2, 64)
        for name, measure_it in rendezvous.CONTESTANTS
        if not quick or name == HOLDFAST.name
    ]


def per_step_tasks(rounds: int) -> list[Task]:
    """Launches in turn; every ratio is to the bare launch of the same round."""
    return [
        Task(
            per_step.ROW,
            f"{per_step.ROW}/{contestant.name}/{number}",
            partial(_listed, partial(per_step.measure, contestant, number)),
        )
        for number in range(rounds)
        for contestant in _turned(per_step.CONTESTANTS, number)
    ]


def _one(row: str, measured: Callable[[], list[Sample]]) -> Task:
    return Task(row, row, measured)


def _task(case: Case, place: str) -> Task:
    key = f"{case.fault.row}/{case.optimizer}/{case.contestant.name}/{place}"
    return Task(case.fault.row, key, partial(_listed, partial(measure, case)))


def _case(fault: Fault, contestant: Contestant, optimizer: str, number: int) -> Case:
    limit_s = HOLDFAST_LIMIT_S if contestant is HOLDFAST else LIMITS_S[fault.row]
    return Case(fault, contestant, optimizer, number, limit_s)


def _turned(field: Sequence[Contestant], number: int) -> list[Contestant]:
    start = number % len(field)
    return [*field[start:], *field[:start]]


def _listed(measured: Callable[[], Sample]) -> list[Sample]:
    return [measured()]


BENCHMARK = Benchmark(
    name="launch",
    rows=(
        SIGKILL.row,
        "hooks-cost",
        "hooks-paired",
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
