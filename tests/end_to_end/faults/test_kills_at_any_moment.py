"""A rank is killed again and again, also inside the copy of its state: no completed step is lost.

Four ranks, a snapshot at every step, no checkpoint directory at all.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable

import pytest
from tests.end_to_end.faults.job import CLOSE_ORDERS, SOAK_SEEDS, Job
from tests.end_to_end.faults.result import Result, assert_same, run_undisturbed
from tests.servers import Server

from holdfast.contract.page import Phase, Word, parse_words
from holdfast_sidecar.config.paths import find
from holdfast_sidecar.ranks.page import open_page

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]

WORLD = 4
STEPS = 240
KILLS = 4


@pytest.fixture(scope="module")
def undisturbed() -> Result:
    """The same training without us."""
    return run_undisturbed(WORLD, STEPS)


def words(job: Job, attempt: int) -> dict[int, tuple[int, ...]]:
    """The words of every rank's page of this attempt, by rank."""
    found = {}
    for path in find(job.shm, f"*/{job.name}/*/attempt-{attempt}-*.page"):
        if (held := open_page(path)) is not None:
            found[held.identity.rank] = parse_words(held.read())
            held.close()
    return found


def snapshots_are_taken(job: Job, attempt: int) -> bool:
    pages = words(job, attempt)
    return len(pages) == WORLD and all(page[Word.SNAPSHOTS_TAKEN] > 1 for page in pages.values())


def kill(job: Job, attempt: int, victim: int, chance: random.Random) -> None:
    """SIGKILL a rank at a random moment; every other time while it copies."""
    job.await_that(lambda: snapshots_are_taken(job, attempt), "snapshots are taken")
    pid = job.ranks()[victim].pid
    if chance.random() < 0.5:
        job.await_that(
            lambda: words(job, attempt)[victim][Word.PHASE] == Phase.SAVING, "a rank copies"
        )
    else:
        job.await_steps(chance.randrange(1, 4))
    os.kill(pid, signal.SIGKILL)


def kill_often(job: Job, kills: int, chance: random.Random) -> None:
    """Train to the end through so many kills; each attempt goes on where all ranks had come."""
    options = [f"--nproc-per-node={WORLD}", "--set=snapshot.every_steps=1", *CLOSE_ORDERS]
    node = job.start("a", options, ["resumable", str(STEPS), "0.02"])
    for _ in range(kills):
        attempt = max(rank.attempt for rank in job.await_stepping(WORLD).values())
        kill(job, attempt, chance.randrange(WORLD), chance)
        ranks = job.await_stepping(WORLD, attempt + 1)
        assert {rank.attempt for rank in ranks.values()} == {attempt + 1}, job.story()
        completed = min(page[Word.STEP] for page in words(job, attempt).values())
        assert job.await_resumed(WORLD, attempt + 1) >= completed, job.story()
    assert node.wait() == 0, job.story()


def test_no_completed_step_is_lost_to_kills_at_random_moments(
    make_job: Callable[..., Job], server: Server, undisturbed: Result
) -> None:
    job = make_job(server)
    kill_often(job, KILLS, random.Random(3))
    assert_same(job, undisturbed)


@pytest.mark.soak
@pytest.mark.parametrize("seed", SOAK_SEEDS)
def test_no_completed_step_is_lost_whatever_the_moment(
    make_job: Callable[..., Job], server: Server, undisturbed: Result, seed: int
) -> None:
    job = make_job(server)
    kill_often(job, KILLS, random.Random(seed))
    assert_same(job, undisturbed)
