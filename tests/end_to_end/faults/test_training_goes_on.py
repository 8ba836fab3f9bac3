"""What a job outlives without a restart: Redis away, a dead sidecar, a dead leader, silence."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial

import pytest
from tests.end_to_end.faults.job import SOAK_SEEDS, Job, Rank, await_exit
from tests.servers import Server

pytestmark = pytest.mark.torch

AWAY_STEPS = 300
"""Steps to be made while Redis is away: more than 3 s of them, past every lease and deadline."""

Absence = Callable[[Server], AbstractContextManager[None]]


@contextmanager
def killed(server: Server) -> Iterator[None]:
    """It comes back with nothing in it."""
    server.kill()
    try:
        yield
    finally:
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


def outlive_absence(job: Job, server: Server, fault: Absence) -> None:
    """Redis goes and comes back: nothing restarts, somebody leads, and a crash is answered."""
    before = job.ranks()
    epoch = led_epoch(job)
    with fault(server):
        job.await_steps(AWAY_STEPS)
    job.await_that(lambda: bool(job.lease().candidate), "somebody leads again")
    job.await_that(lambda: job.plan() is not None, "the plan is back")
    after = job.await_steps(50)
    assert job.lease().epoch >= epoch
    assert pids(after) == pids(before)
    plan = job.plan()
    assert plan is not None
    assert (plan.attempt, plan.state) == (before[0].attempt, "running")
    again = kill_rank(job, 1)
    assert {rank: r.node for rank, r in again.items()} == {r: before[r].node for r in before}


def outlive_crash_meanwhile(job: Job, server: Server) -> None:
    """A rank dies while Redis is away, and is replaced when it is back."""
    before = job.ranks()
    with killed(server):
        os.kill(before[0].pid, signal.SIGKILL)
        await_exit(before[0].pid)
    again = job.await_stepping(2, before[0].attempt + 1)
    assert attempts(again) == {before[0].attempt + 1}, job.story()


def outlive_dead_sidecar(job: Job) -> None:
    """Another sidecar picks the same ranks up, and answers a crash among them."""
    job.await_that(lambda: led_epoch(job) > 0, "somebody leads")
    leader = job.lease().candidate.partition("/")[0]
    follower = next(node for node in job.nodes if node != leader)
    before = job.ranks()
    kill_sidecar(job, follower)
    job.await_that(
        lambda: "found sidecar_lost" in job.sidecar_log(leader), "its launcher told the leader"
    )
    after = job.await_steps(50)
    assert pids(after) == pids(before)
    kill_rank(job, next(r.rank for r in before.values() if r.node == follower))


def outlive_dead_leader(job: Job) -> None:
    """Somebody leads in a higher epoch, and the ranks never knew."""
    job.await_that(lambda: led_epoch(job) > 0, "somebody leads")
    lease, before = job.lease(), job.ranks()
    kill_sidecar(job, lease.candidate.partition("/")[0])
    job.await_that(lambda: led_epoch(job) > lease.epoch, "a new leader with a higher epoch")
    after = job.await_steps(100)
    assert pids(after) == pids(before)
    kill_rank(job, 0)


def kill_rank(job: Job, rank: int) -> dict[int, Rank]:
    """SIGKILL a rank and wait until all step again, one attempt later."""
    before = job.ranks()
    os.kill(before[rank].pid, signal.SIGKILL)
    again = job.await_stepping(len(before), before[rank].attempt + 1)
    assert attempts(again) == {before[rank].attempt + 1}, job.story()
    return again


@pytest.mark.parametrize("fault", [killed, paused, emptied])
def test_training_goes_on_without_redis_and_a_crash_afterwards_is_recovered(
    pair: Job, lasting_server: Server, fault: Absence
) -> None:
    outlive_absence(pair, lasting_server, fault)


def test_a_rank_that_dies_while_redis_is_away_is_replaced_when_it_is_back(
    pair: Job, lasting_server: Server
) -> None:
    outlive_crash_meanwhile(pair, lasting_server)


def test_a_killed_sidecar_is_replaced_and_watches_the_same_ranks(pair: Job) -> None:
    outlive_dead_sidecar(pair)


def test_the_leaders_death_costs_no_restart(pair: Job) -> None:
    outlive_dead_leader(pair)


def test_silence_alone_ends_nobody(pair: Job) -> None:
    """All ranks do nothing for 8 s in the middle of a step, which is no one's fault."""
    before = pair.ranks()
    pair.say("be-silent")
    pair.await_that(lambda: all((pair.out / f"silent-{r}").exists() for r in before), "silence")
    after = pair.await_steps(20)
    assert pids(after) == pids(before)


@pytest.mark.soak
@pytest.mark.parametrize("seed", SOAK_SEEDS)
def test_troubles_in_any_order_are_outlived(pair: Job, lasting_server: Server, seed: int) -> None:
    troubles: list[Callable[[], None]] = [
        *(partial(outlive_absence, pair, lasting_server, how) for how in (killed, paused, emptied)),
        partial(outlive_crash_meanwhile, pair, lasting_server),
        partial(outlive_dead_sidecar, pair),
        partial(outlive_dead_leader, pair),
    ]
    for outlive in random.Random(seed).choices(troubles, k=4):
        outlive()


def pids(ranks: dict[int, Rank]) -> set[int]:
    return {rank.pid for rank in ranks.values()}


def attempts(ranks: dict[int, Rank]) -> set[int]:
    return {rank.attempt for rank in ranks.values()}


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
