"""A node that becomes slow in the middle of a job is named, and a spare takes its place."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.end_to_end.faults.job import CLOSE_ORDERS, Job
from tests.end_to_end.faults.test_health_gate import holdfast, members
from tests.servers import Server

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]

IMPATIENT = ("--set=policy.replace_slow_after_s=4",)
"""Minutes otherwise."""

WORLD = 4
"""Of two or three ranks nobody is ever sure enough which of them is the odd one."""


def test_a_slow_nodes_place_is_taken_by_a_spare(
    make_job: Callable[..., Job], server: Server, tmp_path: Path
) -> None:
    job = make_job(server)
    job.keeps_warm = True  # a replacement is worth less the longer a restart takes
    options = [
        "--nnodes=2",
        "--nproc-per-node=2",
        "--spares=1",
        f"--checkpoint-dir={tmp_path}",
        "--set=snapshot.peer=off",
        *CLOSE_ORDERS,
        *IMPATIENT,
    ]
    for node in "ab":
        job.start(node, [*options, f"--set=sidecar.machine=machine-{node}"], ["lagging", "b"])
    ranks = job.await_stepping(WORLD)
    job.start("c", [*options, "--set=sidecar.machine=machine-c"], ["lagging", "b"])
    # What a restart takes is known from the last one; as long as it is not, minutes are assumed.
    os.kill(next(rank.pid for rank in ranks.values() if rank.node == "a"), signal.SIGKILL)
    job.await_stepping(WORLD, attempt=1)
    assert members(job) == {"a", "b"}
    job.await_that(lambda: all(i.recovered_unix_s for i in job.incidents()), "it is over")
    job.await_that(
        lambda: "job: nobody is slow" in holdfast(job, "explain", "--slow"), "attempt 1 is judged"
    )

    job.say("tired")
    job.await_that(lambda: " on b is slow" in holdfast(job, "explain", "--slow"), "b is named")
    # When depends on what the first restart took: the busier the machine, the later it is worth it.
    job.await_that(lambda: any(i.cause == "straggler" for i in job.incidents()), "b is replaced")
    job.await_stepping(WORLD, attempt=2)
    assert members(job) == {"a", "c"}, job.story()
    (incident,) = [one for one in job.incidents() if one.cause == "straggler"]
    assert (incident.culprit_node, incident.escalation) == ("b", "without_node")
    assert job.await_resumed(WORLD, attempt=2) > 30
    told = holdfast(job, "explain", incident.identifier)
    assert "slowed the job" in told
    assert "slow without a break for" in told
    (outside,) = json.loads(holdfast(job, "status", "--json"))["outside"]
    assert (outside["node"], outside["incident"]) == ("b", incident.identifier)
    job.await_that(
        lambda: "job: nobody is slow" in holdfast(job, "explain", "--slow"), "attempt 2 is judged"
    )
    assert "lost to" in holdfast(job, "report")
    job.finish()
