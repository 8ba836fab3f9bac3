"""A real job is paused, restarted on purpose, and does without a node that is blamed too often."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.end_to_end.faults.job import CLOSE_ORDERS, Job, await_exit
from tests.servers import Server

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]

PAUSED_S = 2.0
"""Many times as long as a restart would need to be ordered."""


def holdfast(job: Job, *arguments: str) -> str:
    """What a command says of the job; it must succeed."""
    assert job.server is not None
    where = [f"--job={job.name}", f"--redis={job.server.settings.url}"]
    done = subprocess.run(
        [sys.executable, "-m", "holdfast_sidecar.cli.main", *arguments, *where],
        env=job.environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, (done.stdout, done.stderr, job.story())
    return done.stdout


def kill_rank_of(job: Job, node: str) -> None:
    (pid,) = [rank.pid for rank in job.ranks().values() if rank.node == node]
    os.kill(pid, signal.SIGKILL)
    await_exit(pid)


def members(job: Job) -> list[str]:
    plan = job.plan()
    return [] if plan is None else [member.node for member in plan.members]


def test_a_pause_a_wished_restart_and_a_node_that_is_blamed_too_often(
    make_job: Callable[..., Job], server: Server, tmp_path: Path
) -> None:
    job = make_job(server)
    told_hooks = tmp_path / "hooks"
    hooks = [
        f"--set=nodes.{when}=sh -c 'echo {when} $1 \"$2\" >> {told_hooks}' - {{node}} {{reason}}"
        for when in ("on_quarantine", "on_return")
    ]
    for node in "abc":
        who = [f"--set=sidecar.machine=machine-{node}", "--set=snapshot.peer=off"]
        job.start(node, ["--nnodes=2", "--spares=1", *who, *hooks, *CLOSE_ORDERS], ["endless"])
    job.await_stepping(2)
    (blamed, healthy) = (members(job)[1], members(job)[0])
    (spare,) = {"a", "b", "c"} - {blamed, healthy}

    # Nothing is done about a rank that is killed in a pause.
    told = holdfast(job, "pause", "--for", "10m", "--reason", "a debugger")
    assert "is paused for 10 min" in told
    kill_rank_of(job, blamed)
    time.sleep(PAUSED_S)
    plan = job.plan()
    assert plan is not None
    assert (plan.attempt, plan.state, job.incidents()) == (0, "running", [])
    assert "nothing is done about faults: a debugger" in job.nodes[healthy].output
    holdfast(job, "resume")
    job.await_stepping(2, attempt=1)

    # A restart that somebody wished for counts as nobody's fault.
    told = holdfast(job, "restart", "--no-save", "--reason", "new data")
    assert "attempt 2 runs" in told
    assert {i.cause for i in job.incidents()} == {"crash", "restart"}

    # The third failure that is blamed on one machine puts it outside.
    for attempt in (2, 3):
        job.await_stepping(2, attempt)
        assert members(job) == [healthy, blamed], job.story()
        kill_rank_of(job, blamed)
    job.await_stepping(2, attempt=4)
    assert members(job) == [healthy, spare], job.story()
    plan = job.plan()
    assert plan is not None
    assert [(one.node, one.part) for one in plan.outside] == [(blamed, f"machine-{blamed}")]
    job.await_that(
        lambda: "this node is kept outside until" in job.nodes[blamed].output,
        "its launcher says so",
    )
    assert f"kept out    {blamed}, for another" in holdfast(job, "status")
    job.await_that(told_hooks.exists, "the scheduler is told")
    assert told_hooks.read_text() == f"on_quarantine {blamed} {plan.outside[0].evidence[0]}\n"
    job.await_that(
        lambda: f"on_quarantine for {blamed}: done" in holdfast(job, "status"), "and people"
    )
    told = holdfast(job, "resume", "--node", blamed)
    assert f"node {blamed} may come in again" in told
    plan = job.plan()
    assert plan is not None
    assert (plan.attempt, plan.outside) == (4, [])
    back = f"on_return {blamed} "
    job.await_that(lambda: back in told_hooks.read_text(), "the scheduler is told of that, too")
    assert len(told_hooks.read_text().splitlines()) == 2

    holdfast(job, "stop")
    assert {node.wait() for node in job.nodes.values()} == {0}, job.story()
    # What the job had got over is no reason of its end.
    assert [node for node in job.nodes.values() if "FAILED" in node.output] == [], job.story()
