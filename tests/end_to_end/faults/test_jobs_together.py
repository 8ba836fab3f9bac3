"""Jobs that share a node and a server, and a name that is used again."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest
from tests.end_to_end.faults.job import CLOSE_ORDERS, Job
from tests.servers import Server

pytestmark = pytest.mark.torch


def test_a_fault_in_one_job_is_no_business_of_another(
    make_job: Callable[..., Job], server: Server
) -> None:
    jobs = [make_job(server, f"job{number}") for number in range(2)]
    for job in jobs:
        job.start("a", [], ["endless"])
    before = [job.await_stepping(1)[0] for job in jobs]
    os.kill(before[0].pid, signal.SIGKILL)
    jobs[0].await_stepping(1, attempt=1)
    assert jobs[1].await_steps(20)[0].pid == before[1].pid
    assert [len(job.incidents()) for job in jobs] == [1, 0]
    for job in jobs:
        job.finish()


def test_a_name_is_refused_while_it_lives_and_resumes_afterwards(
    make_job: Callable[..., Job], server: Server
) -> None:
    job = make_job(server)
    options = [
        *CLOSE_ORDERS,
        f"--checkpoint-dir={job.folder}/checkpoints",
        "--checkpoint-every=5steps",
    ]
    job.say("hold")
    first = job.start("a", options, ["resumable", "40", "0.04"])
    job.await_stepping(1)
    other = job.start("b", [f"--checkpoint-dir={job.folder}/elsewhere"], ["resumable", "40", "0"])
    assert other.wait() == 2
    assert len(other.output.splitlines()) == 1, other.output
    assert "job 'job' is running with other settings" in other.output
    (job.out / "hold").unlink()
    assert first.wait() == 0, job.story()
    again = job.start("a", options, ["resumable", "60", "0"])
    assert again.wait() == 0, job.story()
    assert (job.out / "start-0-0").read_text() == "0"
    assert int((job.out / "start-1-0").read_text()) >= 10
