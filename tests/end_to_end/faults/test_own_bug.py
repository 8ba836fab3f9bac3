"""A bug of the user's own is not started again for ever."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.end_to_end.faults.job import Job
from tests.servers import Server

pytestmark = pytest.mark.torch


def test_the_same_exception_at_the_same_step_stops_the_job_the_second_time(
    make_job: Callable[..., Job], server: Server
) -> None:
    job = make_job(server)
    nodes = [job.start(node, ["--nnodes=2"], ["broken"]) for node in "ab"]
    assert [node.wait() for node in nodes] == [65, 65], job.story()
    for node in nodes:
        assert (
            "the same failure 2 times: ValueError: sample 17 has no label at step 5" in node.output
        )
    plan = job.plan()
    assert plan is not None
    assert (plan.attempt, plan.state, plan.exit_code) == (1, "stopped", 65)
