"""A job with a server beside it, ended with the test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.end_to_end.faults.job import Job, new_job
from tests.servers import Server


@pytest.fixture
def job(server: Server) -> Iterator[Job]:
    """Not started yet; its folder goes with it."""
    made = new_job(server)
    yield made
    made.close()
