"""Who may decide about nodes that are missing."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from simulated_job import SimulatedJob
from troubled_job import TroubledJob

from holdfast_sidecar.coordination.memory_store import MemoryStore
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


def test_a_side_without_most_of_the_nodes_takes_in_no_wishes(tmp_path: Path) -> None:
    """The others may have been asked for something else; it is done when they are back."""
    job = started(tmp_path, 2, "redis+sentinel://a/s")
    job.nodes["n1"].dead = True
    job.run(2)
    job.ask("p", "pause", for_s=60.0)
    job.run(3)
    assert job.plan is not None
    assert job.plan.pause is None
    assert set(job.requests()) == {"p"}
    job.nodes["n1"].dead = False
    job.run_until(lambda: job.plan is not None and job.plan.pause is not None)


def behind_sentinels(folder: Path, nodes: int) -> TroubledJob:
    job = TroubledJob(folder, nodes=nodes, least=1)
    object.__setattr__(job.settings, "redis", RedisSettings(url="redis+sentinel://a/s"))
    job.run_until(lambda: job.is_running(0))
    job.run(1)
    return job


def test_of_two_sides_with_a_server_each_the_greater_one_goes_on_and_the_other_orders_nothing(
    tmp_path: Path,
) -> None:
    job = behind_sentinels(tmp_path, 3)
    epoch = MemoryStore(job.server).read().lease.epoch
    job.split("n2")
    written = len(job.orders)
    job.run_until(lambda: job.is_running(1))
    alone = job.nodes["n2"]
    job.run(3)
    assert alone.coordinator.orders().is_leader, "on its own server"
    assert "not more than half" in alone.coordinator.waiting
    assert alone.attempts_run == [0]
    assert alone.state == "running", "nothing was ended there"
    assert "n2" not in {o.lease.candidate.partition("/")[0] for o in job.orders[written:]}
    job.mend()
    job.run_until(lambda: job.is_running(2))
    assert job.plan is not None
    assert len(job.plan.members) == 3
    assert MemoryStore(job.server).read().lease.epoch > epoch
    job.check()


def test_of_two_equal_sides_neither_goes_on_and_both_train_on_once_they_meet(
    tmp_path: Path,
) -> None:
    job = behind_sentinels(tmp_path, 2)
    job.split("n1")
    written = len(job.orders)
    job.run(5)
    assert job.orders[written:] == []
    assert {node.state for node in job.nodes.values()} == {"running"}
    job.mend()
    job.run(3)
    assert job.is_running(0)
    assert job.incidents() == []
    job.check()
