"""Jobs for the tests here: one that lasts through a file's tests, and any number of others."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests import servers
from tests.end_to_end.faults.job import Job, new_job

pytest.importorskip("torch")


@pytest.fixture(scope="module")
def lasting_server() -> Iterator[servers.Server]:
    """A server that the tests of one file share, restarts included."""
    folder = Path(tempfile.mkdtemp(prefix="hf-", dir="/tmp"))
    started = servers.plain_on_socket(folder).start()
    yield started
    started.kill()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def nursery(lasting_server: servers.Server) -> Iterator[Callable[[], Job]]:
    """Two nodes with a rank each that train until the file's tests are over.

    Starting them takes longer than most faults. After a test that broke the job comes a new one.
    """
    jobs: list[Job] = []

    def ready() -> Job:
        if jobs and all(node.process.poll() is None for node in jobs[-1].nodes.values()):
            return jobs[-1]
        jobs.append(new_job(lasting_server, f"job{len(jobs)}"))
        for node in "ab":
            jobs[-1].start(node, ["--nnodes=2"], ["endless"])
        return jobs[-1]

    yield ready
    for job in jobs:
        job.close()


@pytest.fixture
def pair(nursery: Callable[[], Job]) -> Job:
    """The lasting job, both ranks stepping."""
    job = nursery()
    job.await_stepping(2)
    return job


@pytest.fixture
def make_job() -> Iterator[Callable[..., Job]]:
    """Makes jobs that end with the test."""
    jobs: list[Job] = []

    def make(server: servers.Server | None, name: str = "job") -> Job:
        jobs.append(new_job(server, name))
        return jobs[-1]

    yield make
    for job in jobs:
        job.close()
