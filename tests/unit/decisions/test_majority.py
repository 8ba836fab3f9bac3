"""Who may decide about nodes that are missing."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from simulated_job import SimulatedJob

from holdfast_sidecar.settings import RedisSettings


def started(folder: Path, nodes: int, url: str) -> SimulatedJob:
    job = SimulatedJob(folder, nodes=nodes, spares=1)
    behind = dataclasses.replace(job.settings, redis=RedisSettings(url=url))
    for node in job.nodes.values():
        node.coordinator._leadership._settings = behind
    job.run_until(lambda: job.plan is not None and job.plan.state == "running")
    job.run(1)
    return job


@pytest.mark.parametrize(
    ("nodes", "lost", "url", "goes_on"),
    [
        (2, 1, "redis://a", True),
        (2, 1, "redis+sentinel://a/s", False),
        (3, 1, "redis+sentinel://a/s", True),
        (3, 2, "redis+sentinel://a/s", False),
    ],
    ids=["one server", "a tie, whatever waits as a spare", "most are here", "a minority"],
)
def test_a_side_without_most_of_the_attempts_nodes_waits(
    nodes: int, lost: int, url: str, goes_on: bool, tmp_path: Path
) -> None:
    job = started(tmp_path, nodes, url)
    for index in range(lost):
        job.nodes[f"n{nodes - 1 - index}"].dead = True
    job.run(5)
    assert job.plan is not None
    assert (job.plan.attempt == 1) is goes_on
    if not goes_on:
        assert job.plan.attempt == 0
        assert any("not more than half" in n.coordinator.waiting for n in job.nodes.values())
