"""A real job leaves an unfit node waiting, takes a spare, and does without a drained node."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from tests.end_to_end.faults.job import CLOSE_ORDERS, Job
from tests.servers import Server

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]

UNFIT = "gpus: 0 of 8 are there"


def holdfast(job: Job, *arguments: str, code: int = 0) -> str:
    """What a command says of the job."""
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
    assert done.returncode == code, (done.stdout, done.stderr, job.story())
    return done.stdout + done.stderr


def nodes(job: Job) -> dict[str, dict[str, Any]]:
    return {line["node"]: line for line in json.loads(holdfast(job, "nodes", "--json"))}


def members(job: Job) -> set[str]:
    plan = job.plan()
    return set() if plan is None else {member.node for member in plan.members}


def test_an_unfit_node_waits_and_a_drained_one_is_left_out(
    make_job: Callable[..., Job], server: Server
) -> None:
    job = make_job(server)
    options = ["--nnodes=2", "--spares=2", "--set=snapshot.peer=off", *CLOSE_ORDERS]
    # Two of the first three would do; the one that comes first is unfit.
    job.start("b", [*options, "--set=gate.expected_gpus=8"], ["endless"])
    job.await_that(lambda: "health gate" in job.nodes["b"].output, "b says why it waits")
    assert UNFIT in job.nodes["b"].output
    for node in "acd":
        job.start(node, [*options, f"--set=sidecar.machine=machine-{node}"], ["endless"])
    job.await_stepping(2)
    assert "b" not in members(job), job.story()
    told = nodes(job)
    assert told["b"]["place"] == "unfit"
    assert told["b"]["gate"]["reasons"] == [UNFIT]
    assert {told[node]["gate"]["state"] for node in "acd"} == {"fit"}
    assert f"unfit       b, not taken in: {UNFIT}" in holdfast(job, "status", code=1)

    # A node that is drained trains on until the next attempt, which --now brings.
    drained = max(members(job))
    (spare,) = set("acd") - members(job)
    holdfast(job, "node", "drain", drained, "--for", "1h", "--reason", "a loud fan")
    assert drained in members(job)
    left = (members(job) - {drained}).pop()
    said = holdfast(job, "node", "drain", drained, "--now", "--no-save", "--reason", "a loud fan")
    assert "attempt 1 runs" in said
    job.await_stepping(2, attempt=1)
    assert members(job) == {left, spare}
    assert nodes(job)[drained]["place"] == "outside"
    refused = holdfast(job, "node", "drain", spare, code=1)
    assert "too few are left: 1" in refused

    # Returned, it waits as a spare; it may be put to the test, and who trains may not.
    holdfast(job, "node", "return", drained)
    assert nodes(job)[drained]["place"] == "spare"
    said = holdfast(job, "nodes", "test", drained)
    assert f"node {drained}: nothing is wrong" in said
    assert "GFLOP/s" in said
    assert "ranks run there" in holdfast(job, "nodes", "test", left, code=1)
    job.finish()


def test_a_blamed_node_is_put_to_the_test_before_it_comes_back(
    make_job: Callable[..., Job], server: Server
) -> None:
    job = make_job(server)
    wished = ["--set=gate.test_after_blame=true", "--set=snapshot.peer=off", *CLOSE_ORDERS]
    job.start("a", wished, ["endless"])
    ((_, rank),) = job.await_stepping(1).items()
    os.kill(rank.pid, signal.SIGKILL)
    job.await_stepping(1, attempt=1)
    exertion = nodes(job)["a"]["exertion"]
    (incident,) = job.incidents()
    assert exertion["asked_by"] == incident.identifier
    assert (exertion["state"], exertion["wrong"]) == ("done", []), job.story()
    assert incident.reopened_unix_s - incident.ended_unix_s >= exertion["took_s"] - 1.0
    job.finish()
