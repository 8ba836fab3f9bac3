"""Draining and returning nodes through the real leader, in simulated time."""

from __future__ import annotations

from pathlib import Path

from tests.unit.controller.simulated_job import SimulatedJob

from holdfast_sidecar.records.reports import GateVerdict
from holdfast_sidecar.store.memory_store import MemoryStore
from holdfast_sidecar.store.protocol import Section

DAY_S = 86400.0


def members(job: SimulatedJob) -> list[str]:
    return [] if job.plan is None else [member.node for member in job.plan.members]


def outside(job: SimulatedJob) -> list[str]:
    return [] if job.plan is None else [one.node for one in job.plan.outside]


def running(tmp_path: Path, **options: object) -> SimulatedJob:
    job = SimulatedJob(tmp_path, **options)  # type: ignore[arg-type]
    job.run_until(lambda: job.is_running(0))
    return job


def test_a_member_trains_on_and_is_left_out_of_the_next_attempt(tmp_path: Path) -> None:
    job = running(tmp_path, nodes=2, spares=1)
    job.ask("d", "drain", node="n1", for_s=DAY_S, reason="its fan is loud")
    job.run(3)
    assert job.is_running(0)
    assert job.requests() == {}
    (one,) = job.plan.outside if job.plan is not None else []
    assert one.evidence == ["drained by ann@desk: its fan is loud"]
    assert (one.by, one.is_drained) == ("ann@desk", True)
    assert one.until_unix_s - one.since_unix_s == DAY_S
    job.nodes["n0"].crash(0, -9, job.now)
    job.run_until(lambda: job.is_running(1))
    assert members(job) == ["n0", "n2"]


def test_a_drain_ends_by_itself_and_a_return_ends_it_sooner(tmp_path: Path) -> None:
    job = running(tmp_path, nodes=2, spares=1)
    job.ask("d", "drain", node="n1", for_s=20.0)
    job.run(2)
    assert outside(job) == ["n1"]
    job.run(20)
    assert outside(job) == []
    job.ask("e", "drain", node="n1", for_s=DAY_S)
    job.run(2)
    job.ask("r", "return", node="n1")
    job.run(2)
    assert outside(job) == []
    assert job.requests() == {}


def test_before_the_first_attempt_it_holds_too_and_is_in_the_first_plan(tmp_path: Path) -> None:
    job = SimulatedJob(tmp_path, nodes=2, spares=1)
    late = [job.nodes.pop("n1"), job.nodes.pop("n2")]
    job.run(1)
    job.ask("d", "drain", node="n0", for_s=DAY_S)
    job.nodes["n1"] = late[0]
    job.run(5)
    assert job.plan is None
    assert set(job.requests()) == {"d"}, "it stands until there is a plan to note it in"
    job.nodes["n2"] = late[1]
    job.run_until(lambda: job.is_running(0))
    assert members(job) == ["n1", "n2"]
    assert outside(job) == ["n0"]
    job.run(1)
    assert job.requests() == {}
    assert outside(job) == ["n0"]


def test_it_is_refused_where_too_few_nodes_would_be_left_unless_it_is_forced(
    tmp_path: Path,
) -> None:
    job = running(tmp_path, nodes=2)
    job.ask("d", "drain", node="n1", for_s=DAY_S)
    job.run(2)
    assert job.requests()["d"].refused == (
        "without node n1 too few are left: 1, and the next attempt would have to wait (--force "
        "drains it all the same)"
    )
    MemoryStore(job.server).report(Section.REQUESTS, "d", None)
    job.ask("e", "drain", node="n1", for_s=DAY_S, is_forced=True)
    job.run(2)
    assert outside(job) == ["n1"]


def test_who_would_not_be_taken_in_again_is_no_node_to_go_on_with(tmp_path: Path) -> None:
    job = running(tmp_path, nodes=2, spares=1)
    job.nodes["n1"].gate = GateVerdict("unfit", ["gpus: 1 of 2 are there"], job.now)
    job.run(1)
    job.ask("d", "drain", node="n0", for_s=DAY_S)
    job.run(2)
    assert job.requests()["d"].refused == (
        "without node n0 too few are left: 1 (unfit: n1), and the next attempt would have to wait"
        " (--force drains it all the same)"
    )
    job.nodes["n1"].gate = GateVerdict("unfit", ["pcie: GPU 0 is slow"], job.now, works=True)
    job.run(1)
    job.ask("e", "drain", node="n0", for_s=DAY_S)
    job.run(2)
    assert outside(job) == ["n0"], "where it is needed it is taken in"
    job.nodes["n1"].crash(0, -9, job.now)
    job.run_until(lambda: job.is_running(1))
    assert sorted(members(job)) == ["n1", "n2"]


def test_a_drained_node_is_not_taken_though_it_be_needed(tmp_path: Path) -> None:
    """A quarantine is lifted then; a person who drains has a hand in the machine."""
    job = running(tmp_path, nodes=2, spares=1)
    job.ask("d", "drain", node="n2", for_s=DAY_S)
    job.run(2)
    job.nodes["n1"].dead = True
    job.run(20)
    assert job.plan is not None
    assert (job.plan.attempt, job.plan.state) == (0, "ended")
    told = "".join(node.coordinator.waiting for node in job.nodes.values() if not node.dead)
    assert told == "1 of 2 nodes are here; kept outside: n2 (drained by ann@desk)"
    job.ask("r", "return", node="n2")
    job.run_until(lambda: job.is_running(1))
    assert members(job) == ["n0", "n2"]


def ended_with_one_drained(tmp_path: Path) -> SimulatedJob:
    """A run that is over, and the node n1 that a person keeps outside."""
    job = running(tmp_path, nodes=2)
    job.ask("d", "drain", node="n1", for_s=DAY_S, is_forced=True)
    job.run(1)
    job.until = 0
    job.run_until(lambda: all(node.exit_code is not None for node in job.nodes.values()))
    job.until = 10**9
    return job


def test_what_a_run_left_drained_can_be_returned_before_the_next_one(tmp_path: Path) -> None:
    job = ended_with_one_drained(tmp_path)
    for name in ("n0", "n1"):
        job.add(name)
    job.run(10)
    assert job.plan is not None
    assert job.plan.state == "done", "it waits for the node that a person keeps outside"
    job.ask("r", "return", node="n1")
    job.run_until(lambda: job.plan is not None and job.is_running(job.plan.attempt))
    job.run(1)
    assert (outside(job), job.requests()) == ([], {})


def test_a_return_outlasts_the_wait_for_the_next_run_s_nodes(tmp_path: Path) -> None:
    job = ended_with_one_drained(tmp_path)
    job.ask("r", "return", node="n1")
    job.ask("c", "checkpoint")
    job.add("n0")
    job.run(5)
    assert set(job.requests()) == {"r"}, "what else was asked of the run that ended is over"
    job.add("n1")
    job.run_until(lambda: job.plan is not None and job.is_running(job.plan.attempt))
    job.run(1)
    assert (outside(job), job.requests()) == ([], {})


def test_a_second_node_is_not_drained_when_the_first_left_none_to_spare(tmp_path: Path) -> None:
    job = running(tmp_path, nodes=2, spares=1)
    job.ask("d", "drain", node="n1", for_s=DAY_S)
    job.run(2)
    job.ask("e", "drain", node="n0", for_s=DAY_S)
    job.run(2)
    assert job.requests()["e"].refused.startswith("without node n0 too few are left: 1")
    assert outside(job) == ["n1"]


def test_an_unknown_node_is_refused_with_those_there_are(tmp_path: Path) -> None:
    job = running(tmp_path, nodes=2)
    job.ask("d", "drain", node="n7", for_s=DAY_S)
    job.run(2)
    assert job.requests()["d"].refused == "there is no node n7 (there are: n0, n1)"


def test_a_drain_outlives_its_leader(tmp_path: Path) -> None:
    job = running(tmp_path, nodes=2, spares=2)
    leader = next(n.name for n in job.nodes.values() if n.coordinator.orders().is_leader)
    victim = next(n for n in members(job) if n != leader)
    job.ask("d", "drain", node=victim, for_s=DAY_S)
    job.run(2)
    job.nodes[leader].dead = True
    job.run(3)
    if job.is_running(0):
        next(job.nodes[name] for name in members(job)).crash(0, -9, job.now)
    job.run_until(lambda: job.is_running(1))
    assert victim not in members(job)
    assert outside(job) == [victim]
