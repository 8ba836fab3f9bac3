"""Faults change neither the samples that a job sees nor, to the last bit, the weights it ends with.

Four ranks on two nodes, with shuffling, dropout and random numbers of Python and torch; the
undisturbed run is torch's own launcher without Holdfast.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from tests.end_to_end.faults.job import CLOSE_ORDERS, SOAK_SEEDS, Job
from tests.end_to_end.faults.result import Result, assert_same, run_undisturbed
from tests.servers import Server

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]

STEPS = 120  # as in test_node_death: one undisturbed run serves both
WORLD = 4


@dataclass(frozen=True)
class Fault:
    """What happens once every rank has reached a step."""

    kind: str
    rank: int
    step: int


@pytest.fixture(scope="module")
def undisturbed() -> Result:
    """The same training without us."""
    return run_undisturbed(WORLD, STEPS)


def carry_out(job: Job, fault: Fault) -> None:
    """Bring the fault about and wait until all ranks step in the next attempt."""
    job.await_that(lambda: has_reached(job, fault.step), f"step {fault.step}")
    ranks = job.ranks()
    victim = ranks[fault.rank]
    if fault.kind == "lose a node":
        job.nodes[victim.node].process.kill()
    else:
        os.kill(victim.pid, signal.SIGSTOP if fault.kind == "freeze" else signal.SIGKILL)
    job.await_stepping(WORLD, victim.attempt + 1)


def has_reached(job: Job, step: int) -> bool:
    ranks = job.ranks()
    return len(ranks) == WORLD and all(rank.step >= step for rank in ranks.values())


def run_through(job: Job, faults: list[Fault], *more: str) -> None:
    """Train to the end on nodes a and b, with c waiting, through these faults."""
    options = ["--nnodes=2", "--nproc-per-node=2", "--spares=1", *CLOSE_ORDERS]
    options += [f"--checkpoint-dir={job.folder}/checkpoints", "--checkpoint-every=10steps"]
    options += more
    for node in "abc":
        job.start(node, options, ["resumable", str(STEPS), "0.02"])
    lost = 0
    for fault in faults:
        carry_out(job, fault)
        lost += fault.kind == "lose a node"
    codes = sorted(node.wait() for node in job.nodes.values())
    assert codes == [-signal.SIGKILL] * lost + [0] * (3 - lost), job.story()


def test_a_frozen_rank_and_a_lost_node_change_nothing(
    make_job: Callable[..., Job], server: Server, undisturbed: Result
) -> None:
    job = make_job(server)
    faults = [Fault("freeze", 3, 37), Fault("lose a node", 0, 78)]
    # By default the newest one can be a second old, which is fifty such steps.
    run_through(job, faults, "--set=snapshot.every_steps=1")
    assert_same(job, undisturbed)
    causes = [i.cause for i in sorted(job.incidents(), key=lambda incident: incident.attempt)]
    assert causes == ["hang", "node_lost"], job.story()
    last = max(job.out.glob("start-*-0"), key=lambda path: int(path.name.split("-")[1]))
    assert int(last.read_text()) >= 30, "it resumed from far behind, or from scratch"


@pytest.mark.soak
@pytest.mark.parametrize("seed", SOAK_SEEDS)
def test_random_faults_at_random_steps_change_nothing(
    make_job: Callable[..., Job], server: Server, undisturbed: Result, seed: int
) -> None:
    chance = random.Random(seed)
    kinds = ["lose a node", *chance.choices(["kill", "freeze"], k=2)]
    chance.shuffle(kinds)
    steps = sorted(chance.sample(range(2, STEPS - 5), k=len(kinds)))
    faults = [
        Fault(kind, chance.randrange(WORLD), step) for kind, step in zip(kinds, steps, strict=True)
    ]
    job = make_job(server)
    run_through(job, faults)
    assert_same(job, undisturbed)
