"""A whole node is lost, its memory too: a spare goes on from the copies on another node.

Two nodes of two ranks, a spare, a snapshot at every step, no checkpoint directory at all.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from contextlib import suppress

import psutil
import pytest
from tests.end_to_end.faults.job import CLOSE_ORDERS, Job
from tests.end_to_end.faults.result import Result, assert_same, run_undisturbed
from tests.servers import Server

from holdfast_sidecar.config.paths import find
from holdfast_sidecar.records.checkpoint import PeerOrder
from holdfast_sidecar.records.codec import decode
from holdfast_sidecar.store.protocol import CURRENT, Section

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]

WORLD = 4
STEPS = 120


@pytest.fixture(scope="module")
def undisturbed() -> Result:
    """The same training without us."""
    return run_undisturbed(WORLD, STEPS)


def start(job: Job, *options: str) -> None:
    nodes = ["--nnodes=2", "--nproc-per-node=2", "--spares=1", "--set=snapshot.every_steps=1"]
    for node in "abc":
        job.start(node, [*nodes, *CLOSE_ORDERS, *options], ["resumable", str(STEPS), "0.04"])


def lose(job: Job, node: str) -> int:
    """SIGKILL all of a node at once and take its memory; the steps that all ranks had completed."""
    launcher = psutil.Process(job.nodes[node].process.pid)
    doomed = {job.sidecar(node), launcher.pid, *(p.pid for p in launcher.children(recursive=True))}
    for pid in doomed:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)  # or those killed first would be seen, and told of
    completed = min(rank.step for rank in job.ranks().values())
    for pid in doomed:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for memory in find(job.shm, f"*/{job.name}/{node}"):
        shutil.rmtree(memory)
    return completed


def peer_order(job: Job) -> PeerOrder | None:
    return decode(PeerOrder, job._section(Section.PEER).get(CURRENT, ""))


def resumed_step(job: Job, attempt: int) -> int:
    job.await_stepping(WORLD, attempt)
    return job.await_resumed(WORLD, attempt)


def finish(job: Job, lost: str, undisturbed: Result) -> None:
    codes = {name: node.wait() for name, node in job.nodes.items()}
    assert codes.pop(lost) == -signal.SIGKILL
    assert set(codes.values()) == {0}, job.story()
    assert_same(job, undisturbed)


def test_no_more_is_lost_with_a_node_than_the_lag(
    make_job: Callable[..., Job], server: Server, undisturbed: Result
) -> None:
    job = make_job(server)
    start(job)

    def is_through() -> bool:
        order = peer_order(job)
        return order is not None and order.through > 10

    job.await_that(is_through, "a second copy is through")
    order = peer_order(job)
    assert order is not None
    node = next(rank.node for rank in job.ranks().values() if rank.rank == 2)
    completed = lose(job, node)
    resumed = resumed_step(job, 1)
    assert order.through <= resumed <= completed + 2, job.story()
    finish(job, node, undisturbed)


def test_nothing_is_lost_with_a_node_when_copies_are_in_step(
    make_job: Callable[..., Job], server: Server, undisturbed: Result
) -> None:
    job = make_job(server)
    start(job, "--set=snapshot.peer=sync")
    job.await_that(lambda: len(job.ranks()) == WORLD, "all are there")
    job.await_that(lambda: all(r.step > 30 for r in job.ranks().values()), "step 30")
    node = next(rank.node for rank in job.ranks().values() if rank.rank == 0)
    completed = lose(job, node)
    assert resumed_step(job, 1) >= completed, job.story()
    finish(job, node, undisturbed)
