"""What a job outlives without a restart: Redis away, a dead sidecar, a dead leader, silence."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psutil
import pytest
from tests.end_to_end.faults.job import Job, Rank, await_exit
from tests.servers import Server

pytestmark = pytest.mark.torch

AWAY_STEPS = 200
"""Steps to be made while Redis is away: more than 2 s of them, past every lease and deadline."""


@contextmanager
def killed(server: Server) -> Iterator[None]:
    """It comes back with nothing in it."""
    server.kill()
    yield
    server.start()


@contextmanager
def paused(server: Server) -> Iterator[None]:
    server.pause()
    try:
        yield
    finally:
        server.resume()


@contextmanager
def emptied(server: Server) -> Iterator[None]:
    client = server.client()
    client.flushall()
    client.close()
    yield


def kill_rank(job: Job, rank: int) -> dict[int, Rank]:
    """SIGKILL a rank and wait until all step again."""
    before = job.ranks()
    os.kill(before[rank].pid, signal.SIGKILL)
    return job.await_stepping(len(before), before[rank].attempt + 1)


@pytest.mark.parametrize("fault", [killed, paused, emptied])
def test_training_goes_on_and_a_crash_afterwards_is_recovered(
    pair: Job, lasting_server: Server, fault: Callable[[Server], Iterator[None]]
) -> None:
    before = pair.ranks()
    epoch = led_epoch(pair)
    with fault(lasting_server):
        pair.await_steps(AWAY_STEPS)
    pair.await_that(lambda: bool(pair.lease().candidate), "somebody leads again")
    pair.await_that(lambda: pair.plan() is not None, "the plan is back")
    after = pair.await_steps(50)
    assert pair.lease().epoch >= epoch
    assert {r.pid for r in after.values()} == {r.pid for r in before.values()}
    attempt = before[0].attempt
    plan = pair.plan()
    assert plan is not None
    assert (plan.attempt, plan.state) == (attempt, "running")
    again = kill_rank(pair, 1)
    assert {r.attempt for r in again.values()} == {attempt + 1}, pair.story()
    assert {rank: r.node for rank, r in again.items()} == {r: before[r].node for r in before}


def test_a_rank_that_dies_while_redis_is_away_is_replaced_when_it_is_back(
    pair: Job, lasting_server: Server
) -> None:
    before = pair.ranks()
    with killed(lasting_server):
        os.kill(before[0].pid, signal.SIGKILL)
        await_exit(before[0].pid)
    again = pair.await_stepping(2, before[0].attempt + 1)
    assert {r.attempt for r in again.values()} == {before[0].attempt + 1}, pair.story()


def test_a_killed_sidecar_is_replaced_and_watches_the_same_ranks(pair: Job) -> None:
    follower = next(n for n in pair.nodes if not pair.lease().candidate.startswith(f"{n}/"))
    before = pair.ranks()
    new = kill_sidecar(pair, follower)
    after = pair.await_steps(50)
    assert {r.pid for r in after.values()} == {r.pid for r in before.values()}
    rank = next(r.rank for r in before.values() if r.node == follower)
    again = kill_rank(pair, rank)
    assert {r.attempt for r in again.values()} == {before[0].attempt + 1}, pair.story()
    assert psutil.pid_exists(new)


def test_the_leaders_death_costs_no_restart(pair: Job) -> None:
    epoch = led_epoch(pair)
    leader = pair.lease().candidate.partition("/")[0]
    before = pair.ranks()
    kill_sidecar(pair, leader)
    pair.await_that(lambda: led_epoch(pair) > epoch, "a new leader with a higher epoch")
    after = pair.await_steps(100)
    assert {r.pid for r in after.values()} == {r.pid for r in before.values()}
    again = kill_rank(pair, 0)
    assert {r.attempt for r in again.values()} == {before[0].attempt + 1}, pair.story()


def test_silence_alone_ends_nobody(pair: Job) -> None:
    """All ranks do nothing for 8 s in the middle of a step, which is no one's fault."""
    before = pair.ranks()
    pair.say("be-silent")
    pair.await_that(lambda: all((pair.out / f"silent-{r}").exists() for r in before), "silence")
    after = pair.await_steps(20)
    assert {r.pid for r in after.values()} == {r.pid for r in before.values()}


def kill_sidecar(job: Job, node: str) -> int:
    """SIGKILL a node's sidecar; the pid of the one that the launcher starts in its place."""
    before = job.sidecar(node)
    os.kill(before, signal.SIGKILL)
    job.await_that(lambda: job.sidecar(node) != before, f"another sidecar on {node}")
    return job.sidecar(node)


def led_epoch(job: Job) -> int:
    """The epoch of whoever leads; 0 while nobody does."""
    lease = job.lease()
    return lease.epoch if lease.candidate else 0
