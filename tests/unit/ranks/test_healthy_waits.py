"""What a healthy rank does for hours while all others wait for it in a collective.

However it looks, in whatever phase: it is told as silent, and nothing acts on that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
from tests.unit.ranks import scene
from tests.unit.ranks.test_arrival import PAST, STEP, standing, trace

from holdfast.contract.page import Phase
from holdfast_sidecar.config.settings import StallSettings
from holdfast_sidecar.linux.syscalls import ThreadWait, Where
from holdfast_sidecar.ranks.arrival import judge_collectives, note_rest, settle
from holdfast_sidecar.ranks.history import Descendant
from holdfast_sidecar.ranks.stall import find_stalls
from holdfast_sidecar.records.findings import Finding, Kind

SETTINGS = StallSettings()
LASTS_S = 4 * 3600.0
PAST_STEPS = scene.steps(10, data=1, forward=20, backward=20, communicating=20, optimizer=2)
QUEUE = ThreadWait(Where.QUEUE, (7, 1, 1))
PHASES = (
    *(Phase.COMPILING, Phase.DATA, Phase.FORWARD, Phase.BACKWARD, Phase.COMMUNICATING),
    *(Phase.OPTIMIZER, Phase.SAVING, Phase.EVALUATING, Phase.IDLE),
)


@dataclass(frozen=True)
class Habit:
    """How a rank looks from outside while it does something."""

    main: ThreadWait = scene.LOCK
    at_work: str = ""
    children: Sequence[Descendant] = ()
    later: Sequence[Descendant] | None = None
    turns: int = 50
    """How often its main thread had got onto a CPU in the end; 50 in the beginning."""
    state: str = "S"


def child(cpu_ticks: int = 100, wait: ThreadWait = QUEUE, **changes: object) -> Descendant:
    return replace(scene.child(cpu_ticks=cpu_ticks, wait=wait), **changes)  # type: ignore[arg-type]


HABITS = {
    "evaluates on a CPU": Habit(ThreadWait(Where.CPU), turns=90_000),
    "evaluates on a GPU and spins": Habit(ThreadWait(Where.CPU), turns=60),
    "evaluates on a GPU and sleeps meanwhile": Habit(ThreadWait(Where.DEVICE, (202, 1, 1))),
    "evaluates, its batches made by a worker": Habit(QUEUE, "", [child()], [child(9_000)]),
    "uploads a checkpoint": Habit(ThreadWait(Where.NETWORK, (45, 1, 1))),
    "uploads by a thread": Habit(at_work="thread uploader waits for network"),
    "uploads by a daemon": Habit(at_work="thread uploader waits for another process"),
    "uploads by a child": Habit(children=[child(wait=ThreadWait(Where.NETWORK))]),
    "writes a checkpoint": Habit(ThreadWait(Where.STORAGE, (74, 1, 1)), state="D"),
    "writes by a thread": Habit(at_work="thread writer waits for storage"),
    "tries an upload again in half a minute": Habit(ThreadWait(Where.SLEEP, (230, 1, 1), 30.0)),
    "waits an hour for its quota": Habit(ThreadWait(Where.SLEEP, (230, 1, 1), 3600.0)),
    "compiles by nvcc": Habit(ThreadWait(Where.CHILD, (61, 1, 1)), "", [child()], [child(9_000)]),
    "compiles by a pool of workers": Habit(scene.LOCK, "", [child()], [child(9_000)]),
    "compiles by a server": Habit(children=[child(wait=ThreadWait(Where.PROCESS))]),
    "reads its batch itself": Habit(ThreadWait(Where.STORAGE, (0, 1, 1))),
    "is fed from storage": Habit(QUEUE, "", [child(state="D", is_worker=True)]),
    "is fed by who reads the network": Habit(
        scene.LOCK, "", [child(wait=ThreadWait(Where.NETWORK))]
    ),
    "is held by a debugger": Habit(state="t"),
    "is frozen with its control group, in a lock": Habit(state="D"),
    "is looked at by a debugger in a child": Habit(children=[child(state="t")]),
}


def judged(phase: Phase, habit: Habit) -> list[Finding]:
    """What is found of rank 2, for which ranks 0 and 1 of another node wait."""
    first = scene.look(0.0, phase, rank=2, world_size=3, records=PAST_STEPS, state=habit.state)
    last = scene.look(LASTS_S, phase, rank=2, world_size=3, state=habit.state, turns=habit.turns)
    peers = [scene.peer(0, "communicating", LASTS_S), scene.peer(1, "communicating", LASTS_S)]
    known = scene.scrutiny(habit.main, habit.children, habit.later, habit.at_work)
    waiting = [trace(rank, standing([*PAST, STEP[0]], 12), size=3) for rank in (0, 1)]
    told = {0: waiting[0], 1: waiting[1], 2: trace(2, standing(PAST), size=3)}
    ranks = scene.ranks(scene.history(first, last), peers=peers)
    ranks = note_rest(replace(ranks, traces=told, scrutinies={2: known}))
    ranks = replace(ranks, arrival=judge_collectives(ranks))
    moment = scene.moment(LASTS_S)
    return settle(find_stalls(ranks, SETTINGS, moment), ranks, SETTINGS, moment)


@pytest.mark.parametrize("phase", PHASES, ids=lambda phase: phase.name.lower())
@pytest.mark.parametrize("habit", HABITS.values(), ids=HABITS)
def test_a_healthy_rank_for_which_all_others_wait_is_told_and_left_alone(
    habit: Habit, phase: Phase
) -> None:
    found = judged(phase, habit)
    assert [finding.ranks for finding in found] == [[2]]
    assert not any(finding.acts or finding.kind is Kind.HANG for finding in found), found


def test_the_same_rank_in_a_lock_of_its_own_is_a_hang() -> None:
    for phase in (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER, Phase.DATA, Phase.IDLE):
        (finding,) = judged(phase, Habit())
        assert (finding.kind, finding.ranks, finding.acts) == (Kind.HANG, [2], True)
