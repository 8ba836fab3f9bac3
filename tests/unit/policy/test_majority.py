"""Who may decide about nodes that are missing."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from tests.unit.controller.simulated_job import SimulatedJob
from tests.unit.controller.troubled_job import TroubledJob

from holdfast_sidecar.config.settings import RedisSettings
from holdfast_sidecar.policy.blame import NO_MAJORITY, too_few_to_decide
from holdfast_sidecar.policy.cluster import parse_cluster
from holdfast_sidecar.store.memory_store import MemoryStore


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


def behind_sentinels(folder: Path, nodes: int, launch: str = "") -> TroubledJob:
    job = TroubledJob(folder, nodes=nodes, least=1)
    for node in job.nodes.values():
        node.launch = launch
    object.__setattr__(job.settings, "redis", RedisSettings(url="redis+sentinel://a/s"))
    job.run_until(lambda: job.is_running(0))
    job.run(1)
    return job


def test_of_two_sides_with_a_server_each_the_greater_one_goes_on_and_the_other_orders_nothing(
    tmp_path: Path,
) -> None:
    job = behind_sentinels(tmp_path, 3)
    epoch = MemoryStore(job.server).read().lease.epoch
    # Two of three are silent to the third one, which suspects its way to the store first.
    object.__setattr__(job.settings.sidecar, "unwitnessed_timeout_s", 2.0)
    for node in job.nodes.values():
        node.communicates = False  # else each side's steps would show that the other one lives
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


def kill_all(job: TroubledJob) -> None:
    """A power cut, or a scheduler's SIGKILL; the servers are elsewhere."""
    for node in job.nodes.values():
        node.dead = True


def newcomers(job: TroubledJob, *names: str, launch: str = "", number: int = 0) -> None:
    for name in names:
        node = job.add(name)
        node.launch, node.launch_number = launch, number


def test_a_job_that_was_killed_as_a_whole_is_started_on_other_hosts(tmp_path: Path) -> None:
    job = behind_sentinels(tmp_path, 2, launch="slurm-7")
    kill_all(job)
    newcomers(job, "p", "q", launch="slurm-7", number=1)
    job.run(50)
    assert job.plan is not None
    assert job.plan.attempt == 0, "whoever lives may be heard of yet"
    job.run_until(lambda: job.is_running(1), 30.0)
    assert {member.node for member in job.plan.members} == {"p", "q"}
    job.check()


@pytest.mark.parametrize(
    ("launch", "number"), [("", 0), ("slurm-7", 0), ("slurm-8", 1)], ids=["none", "same", "other"]
)
def test_newcomers_whom_no_scheduler_started_again_start_nothing_beside_those_that_may_live(
    launch: str, number: int, tmp_path: Path
) -> None:
    """A sidecar that was started on the side of the minority has never heard the others."""
    job = behind_sentinels(tmp_path, 3, launch="slurm-7")
    for node in job.nodes.values():
        node.communicates = False
    other = job.split("n2")
    job.nodes["n2"].dead = True
    newcomers(job, "p", "q", launch=launch, number=number)
    for name in ("p", "q"):
        job.servers[name] = other
    job.run(120)
    plan = parse_cluster(MemoryStore(other).read()).plan
    assert plan is not None
    assert (plan.state, plan.attempt) == ("running", 0)
    assert any(NO_MAJORITY in job.nodes[name].coordinator.waiting for name in ("p", "q"))


def test_too_few_newcomers_do_not_start_without_those_that_were_there(tmp_path: Path) -> None:
    job = TroubledJob(tmp_path, nodes=2)
    object.__setattr__(job.settings, "redis", RedisSettings(url="redis+sentinel://a/s"))
    job.run_until(lambda: job.is_running(0))
    kill_all(job)
    newcomers(job, "p")
    job.run(90)
    assert job.plan is not None
    assert (job.plan.state, job.plan.attempt) == ("running", 0)


def test_spares_that_heard_the_others_do_not_take_over_from_a_side_that_may_live(
    tmp_path: Path,
) -> None:
    job = TroubledJob(tmp_path, nodes=2, spares=2)
    object.__setattr__(job.settings, "redis", RedisSettings(url="redis+sentinel://a/s"))
    job.run_until(lambda: job.is_running(0))
    job.run(2)
    assert job.plan is not None
    spares = set(job.nodes) - {member.node for member in job.plan.members}
    other = job.split(*spares)
    job.run(90)
    plan = parse_cluster(MemoryStore(other).read()).plan
    assert plan is not None
    assert (plan.state, plan.attempt) == ("running", 0)
    job.check()


def test_a_scheduler_that_starts_the_launch_again_says_that_nobody_is_left(tmp_path: Path) -> None:
    """The new ones came while the old ones were still heard of."""
    job = TroubledJob(tmp_path, nodes=2)
    object.__setattr__(job.settings, "redis", RedisSettings(url="redis+sentinel://a/s"))
    for node in job.nodes.values():
        node.launch = "slurm-7"
    job.run_until(lambda: job.is_running(0))
    newcomers(job, "p", "q", launch="slurm-7", number=1)
    job.run(3)
    for name in ("n0", "n1"):
        job.nodes[name].dead = True
    job.run_until(lambda: job.is_running(1), 90.0)
    job.check()


def test_nodes_that_the_store_does_not_hear_are_not_here(tmp_path: Path) -> None:
    """Two of three are silent: one counts as lost already, the other one's sidecar answers."""
    job = started(tmp_path, 3, "redis+sentinel://a/s")
    cluster, plan = parse_cluster(MemoryStore(job.server).read()), job.plan
    assert plan is not None
    one, other, _ = (member.node for member in plan.members)
    cluster = dataclasses.replace(cluster, lost={one: 2.0})
    assert too_few_to_decide(cluster, plan, majority=True) == ""
    cluster = dataclasses.replace(cluster, cut_off={other: "its sidecar answers other nodes"})
    assert "1 of the attempt's 3 nodes" in too_few_to_decide(cluster, plan, majority=True)
    assert too_few_to_decide(cluster, plan, majority=False) == ""
