"""SIGTERM to real jobs, as schedulers send it: to every process, to one node, twice, early."""

from __future__ import annotations

import itertools
import signal
import time
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.end_to_end.preemption.conftest import Scheduler
    from tests.servers import Server

pytestmark = pytest.mark.torch

REQUEUE = 75


def test_a_job_whose_every_process_gets_sigterm_is_saved_and_goes_on_when_requeued(
    scheduler: Scheduler,
) -> None:
    job = scheduler.start(WORKERS="fork")
    scheduler.await_steps(10)
    asked_s = time.monotonic()
    job.signal_all()
    assert job.wait() == REQUEUE, scheduler.story()
    assert time.monotonic() - asked_s < 25, scheduler.story()
    assert len(scheduler.sealed()) == 1, scheduler.story()
    (step,) = scheduler.sealed()
    assert "preempted (SIGTERM on a): the checkpoint of step" in job.output
    # One rank may be a step ahead of the other when they are ended.
    reached = [len(scheduler.steps(rank)) for rank in range(2)]
    assert 10 <= step <= min(reached)
    until = max(reached) + 40
    again = scheduler.start(WORKERS="fork", UNTIL=str(until))
    assert again.wait() == 0, scheduler.story()
    for rank in range(2):
        steps = scheduler.steps(rank)
        assert steps[reached[rank] :] == list(range(step, until))
        batches = [batch for _, batch in scheduler.samples(rank)]
        counted = batches[:step] + batches[reached[rank] :]
        passes = [itertools.chain(*counted[i : i + 16]) for i in range(0, len(counted) - 16, 16)]
        assert passes
        assert all(len(set(seen)) == 32 for seen in passes), "no sample twice in a pass"


def test_one_node_of_two_leaves_and_the_other_goes_on_from_what_was_saved(
    scheduler: Scheduler, server: Server
) -> None:
    options = (f"--redis={server.settings.url}", "--nnodes=1:2")
    a = scheduler.start(*options, node="a", ranks=1)
    b = scheduler.start(*options, node="b", ranks=1)
    scheduler.await_steps(10)
    b.signal_all()
    assert b.wait() == REQUEUE, scheduler.story()
    scheduler.await_that(lambda: "resuming from step" in a.output, "a goes on alone")
    step = int(a.output.split("resuming from step ")[1].split()[0])
    assert step in scheduler.sealed()
    scheduler.await_steps(5, ranks=1)
    # A snapshot that is newer than the checkpoint may be of the last step that there was.
    steps = scheduler.steps()
    since = len(steps) - 1 - steps[::-1].index(step)
    assert steps[since:] == list(range(step, step + len(steps) - since)), "from there"
    assert a.process.poll() is None
    a.signal_all()
    assert a.wait() == REQUEUE, scheduler.story()
    assert "restarts are used up" not in a.output


def test_sigterm_once_more_ends_the_node_at_once(scheduler: Scheduler) -> None:
    (scheduler.out / "evaluate").touch()
    job = scheduler.start(EVALUATE_AT="5")
    scheduler.await_that(lambda: scheduler.steps()[-1:] == [5], "evaluating")
    job.process.send_signal(signal.SIGTERM)
    scheduler.await_that(lambda: "is saved first" in job.output, "it waits")
    time.sleep(2.5)
    assert job.process.poll() is None
    asked_s = time.monotonic()
    job.process.send_signal(signal.SIGTERM)
    assert job.wait() == 1
    assert time.monotonic() - asked_s < 10
    assert "received SIGTERM" in job.output


def test_a_long_evaluation_is_not_waited_for_beyond_the_grace(scheduler: Scheduler) -> None:
    (scheduler.out / "evaluate").touch()
    job = scheduler.start("--set=policy.preemption_grace_s=6", EVALUATE_AT="5")
    scheduler.await_that(lambda: scheduler.steps()[-1:] == [5], "evaluating")
    asked_s = time.monotonic()
    job.signal_all()
    assert job.wait() == REQUEUE, scheduler.story()
    assert 3 < time.monotonic() - asked_s < 12


def test_in_warm_up_sigterm_ends_the_job_at_once(scheduler: Scheduler) -> None:
    job = scheduler.start()
    scheduler.await_that(lambda: "attempt 0" in job.output, "ranks are started")
    asked_s = time.monotonic()
    job.process.send_signal(signal.SIGTERM)
    assert job.wait() == 1, job.output
    assert time.monotonic() - asked_s < 10
    assert scheduler.sealed() == []


def test_while_ranks_start_again_sigterm_saves_what_they_left_in_memory(
    scheduler: Scheduler,
) -> None:
    job = scheduler.start(
        "--set=policy.backoff_s=0.1",
        "--set=checkpoint.least_every_s=3600",
        "--set=snapshot.every_steps=1",
    )
    scheduler.await_steps(30)
    (scheduler.out / "building").touch()
    job.rank(1).kill()
    waiting = [scheduler.out / f"is-building-{rank}" for rank in range(2)]
    scheduler.await_that(lambda: all(path.exists() for path in waiting), "ranks build")
    job.process.send_signal(signal.SIGTERM)
    assert job.wait() == REQUEUE, scheduler.story()
    (step,) = scheduler.sealed()
    assert step >= 20


def test_ranks_that_hold_sigterm_do_not_slow_a_recovery_down(scheduler: Scheduler) -> None:
    """The survivor of a killed rank is torn down while it waits for its peer, in C code."""
    job = scheduler.start("--set=policy.backoff_s=0.1")
    scheduler.await_steps(10)
    first, second = job.rank(0), job.rank(1)
    scheduler.stick(1)
    killed_s = time.monotonic()
    first.kill()
    second.wait(15)
    assert time.monotonic() - killed_s < 15, "it would take the 30 s of --shutdown-timeout"
    scheduler.await_that(lambda: "attempt 1" in job.output, "it restarts")
    job.process.send_signal(signal.SIGINT)
    assert job.wait() == 1
