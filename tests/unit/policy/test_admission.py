"""Who is taken into an attempt, by what the health gates say: the real leader, simulated time."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.controller.simulated_job import SimulatedJob

from holdfast_sidecar.config.settings import GateSettings
from holdfast_sidecar.records.findings import Kind
from holdfast_sidecar.records.reports import GateVerdict

FIT = GateVerdict("fit")
UNFIT = GateVerdict("unfit", ["gpus: 7 of 8 are there"])
LAME = GateVerdict("unfit", ["room: 900 MiB are left for checkpoints"], works=True)


def members(job: SimulatedJob) -> list[str]:
    return [] if job.plan is None else [member.node for member in job.plan.members]


def told(job: SimulatedJob) -> str:
    return "".join(node.coordinator.waiting for node in job.nodes.values())


def test_a_spare_is_taken_in_the_place_of_an_unfit_node(tmp_path: Path) -> None:
    job = SimulatedJob(tmp_path, nodes=2, spares=1)
    job.nodes["n0"].gate = UNFIT
    job.run_until(lambda: job.is_running(0))
    assert members(job) == ["n1", "n2"]
    job.run(3)
    assert job.is_running(0), "nobody is restarted for a node that may not come in"


def test_with_too_few_fit_nodes_the_job_waits_and_says_for_whom(tmp_path: Path) -> None:
    job = SimulatedJob(tmp_path, nodes=2)
    job.nodes["n1"].gate = UNFIT
    job.run(60)
    assert job.plan is None
    assert told(job) == "1 of 2 nodes are here; unfit: n1 (gpus: 7 of 8 are there)"
    job.nodes["n1"].gate = FIT
    job.run_until(lambda: job.is_running(0))
    assert members(job) == ["n0", "n1"]


def test_a_node_that_works_all_the_same_is_taken_in_where_it_can_t_be_spared(
    tmp_path: Path,
) -> None:
    job = SimulatedJob(tmp_path, nodes=2)
    job.nodes["n1"].gate = LAME
    job.run_until(lambda: job.is_running(0))
    job.nodes["n0"].gate = LAME
    job.nodes["n0"].crash(0, 1, job.now, "boom")
    job.run_until(lambda: job.is_running(1))
    assert members(job) == ["n0", "n1"]


def test_a_spare_that_is_well_is_taken_before_one_that_only_works(tmp_path: Path) -> None:
    job = SimulatedJob(tmp_path, nodes=2, spares=2)
    job.nodes["n0"].gate, job.nodes["n1"].gate, job.nodes["n2"].gate = LAME, LAME, UNFIT
    job.run_until(lambda: job.is_running(0))
    assert members(job) == ["n0", "n3"], "and of those that only work no more than are wanting"


def test_no_job_is_restarted_to_grow_by_a_node_that_only_works(tmp_path: Path) -> None:
    job = SimulatedJob(tmp_path, nodes=2, least=1)
    job.nodes["n1"].gate = LAME
    job.run_until(lambda: job.is_running(0))
    job.run(5)
    assert members(job) == ["n0"]
    assert job.is_running(0)


def test_a_node_that_only_works_takes_the_place_of_one_that_must_go(tmp_path: Path) -> None:
    job = SimulatedJob(tmp_path, nodes=2, spares=1, registered=True)
    job.nodes["n2"].gate = LAME
    job.run_until(lambda: job.is_running(0))
    assert members(job) == ["n0", "n1"]
    job.nodes["n1"].preempt(job.now)
    job.run_until(lambda: job.is_running(1), 60.0)
    assert members(job) == ["n0", "n2"]


def test_with_no_fit_node_at_all_it_says_so_too(tmp_path: Path) -> None:
    job = SimulatedJob(tmp_path, nodes=1)
    job.nodes["n0"].gate = UNFIT
    job.run(5)
    assert job.plan is None
    assert "unfit: n0 (gpus: 7 of 8 are there)" in told(job)


@pytest.mark.parametrize("mode", ["suggest", "observe"])
def test_where_the_gate_may_not_act_an_unfit_node_is_taken_in(tmp_path: Path, mode: str) -> None:
    job = SimulatedJob(tmp_path, nodes=2, gate=GateSettings(mode=mode))
    job.nodes["n1"].gate = UNFIT
    job.nodes["n0"].awaits_gate = True
    job.run_until(lambda: job.is_running(0), 3.0)


def test_a_verdict_that_comes_late_is_waited_for(tmp_path: Path) -> None:
    job = SimulatedJob(tmp_path, nodes=2, spares=1, gate=GateSettings(wait_s=5.0))
    for node in job.nodes.values():
        node.awaits_gate = True
    job.nodes["n0"].gate = job.nodes["n2"].gate = FIT
    job.run(3)
    assert job.plan is None
    assert told(job) == "waiting for the health check of n1"
    job.nodes["n1"].gate = UNFIT
    job.run_until(lambda: job.is_running(0), 2.0)
    assert members(job) == ["n0", "n2"]


def test_a_verdict_that_says_nothing_yet_is_none(tmp_path: Path) -> None:
    job = SimulatedJob(tmp_path, nodes=1, gate=GateSettings(wait_s=5.0))
    job.nodes["n0"].awaits_gate = True
    job.nodes["n0"].gate = GateVerdict("unknown")
    job.run(3)
    assert job.plan is None
    job.nodes["n0"].gate = FIT
    job.run_until(lambda: job.is_running(0), 1.0)


def test_a_verdict_that_never_comes_lets_the_node_in_unchecked_and_is_told(tmp_path: Path) -> None:
    job = SimulatedJob(tmp_path, nodes=2, gate=GateSettings(wait_s=5.0))
    job.nodes["n1"].awaits_gate = True
    job.run(4)
    assert job.plan is None
    job.run_until(lambda: job.is_running(0), 3.0)
    assert members(job) == ["n0", "n1"]
    absent = [f for n in job.nodes.values() for f in n.coordinator.orders().absent]
    assert [(f.kind, f.node, f.what) for f in absent] == [(Kind.GATE_BLIND, "n1", "verdict")]


def test_where_no_sidecar_is_to_judge_nothing_is_waited_for(tmp_path: Path) -> None:
    job = SimulatedJob(tmp_path, nodes=2, gate=GateSettings(wait_s=1000.0))
    job.run_until(lambda: job.is_running(0), 3.0)


def test_a_node_that_becomes_unfit_goes_on_and_is_not_taken_next_time(tmp_path: Path) -> None:
    job = SimulatedJob(tmp_path, nodes=2, spares=1)
    job.run_until(lambda: job.is_running(0))
    job.nodes["n1"].gate = UNFIT
    job.run(5)
    assert job.is_running(0), "to end it is not the gate's part"
    job.nodes["n0"].crash(0, -9, job.now)
    job.run_until(lambda: job.is_running(1))
    assert members(job) == ["n0", "n2"]
    job.nodes["n1"].gate = FIT
    job.nodes["n2"].crash(0, -9, job.now)
    job.run_until(lambda: job.is_running(2))
    assert members(job) == ["n0", "n2"], "who has a place keeps it"
    job.nodes["n2"].gate = UNFIT
    job.nodes["n0"].crash(0, -9, job.now)
    job.run_until(lambda: job.is_running(3))
    assert members(job) == ["n0", "n1"], "and who is fit again may have one"


def test_a_restart_waits_as_long_as_for_nodes_that_don_t_come_back_and_then_says_why(
    tmp_path: Path,
) -> None:
    job = SimulatedJob(tmp_path, nodes=2)
    job.run_until(lambda: job.is_running(0))
    job.nodes["n1"].gate = UNFIT
    job.nodes["n0"].crash(0, -9, job.now)
    job.run(500)
    assert job.plan is not None
    assert (job.plan.attempt, job.plan.state) == (0, "ended")
    assert "unfit: n1 (gpus: 7 of 8 are there)" in told(job)
    job.run_until(lambda: job.plan is not None and job.plan.state == "stopped", 200.0)
    assert "too few to go on; unfit: n1 (gpus: 7 of 8 are there)" in job.plan.message


def test_after_a_blame_only_a_verdict_from_after_it_counts(tmp_path: Path) -> None:
    job = SimulatedJob(tmp_path, nodes=2, gate=GateSettings(wait_s=5.0))
    for node in job.nodes.values():
        node.awaits_gate, node.gate = True, FIT
    job.run_until(lambda: job.is_running(0))
    job.nodes["n1"].crash(0, -9, job.now)
    job.run_until(lambda: job.plan is not None and job.plan.state == "ended")
    job.run(3)
    assert told(job) == "waiting for the health check of n1"
    assert job.plan is not None
    job.nodes["n1"].gate = GateVerdict("fit", after=job.plan.incident)
    job.run_until(lambda: job.is_running(1), 1.5)


def test_after_a_blame_an_old_word_is_enough_once_the_patience_is_over(tmp_path: Path) -> None:
    job = SimulatedJob(tmp_path, nodes=2, gate=GateSettings(wait_s=2.0))
    for node in job.nodes.values():
        node.awaits_gate, node.gate = True, FIT
    job.run_until(lambda: job.is_running(0))
    job.nodes["n1"].crash(0, -9, job.now)
    job.run_until(lambda: job.is_running(1), 5.0)


def test_a_blamed_node_that_is_put_to_the_test_is_waited_for_longer(tmp_path: Path) -> None:
    gate = GateSettings(wait_s=2.0, test_after_blame=True, test_timeout_s=20.0)
    job = SimulatedJob(tmp_path, nodes=2, spares=1, gate=gate)
    for node in job.nodes.values():
        node.awaits_gate, node.gate = True, FIT
    job.run_until(lambda: job.is_running(0))
    job.nodes["n1"].crash(0, -9, job.now)
    job.run(18)
    assert job.plan is not None
    assert (job.plan.attempt, job.plan.state) == (0, "ended")
    job.nodes["n1"].gate = GateVerdict("unfit", ["test: a sum came out wrong"])
    job.run_until(lambda: job.is_running(1), 1.5)
    assert members(job) == ["n0", "n2"]


def test_a_new_leader_keeps_an_unfit_node_outside_too(tmp_path: Path) -> None:
    job = SimulatedJob(tmp_path, nodes=2, spares=1)
    job.nodes["n1"].gate = UNFIT
    job.run_until(lambda: job.is_running(0))
    leader = next(n for n in job.nodes.values() if n.coordinator.orders().is_leader)
    job.run(1)
    if leader.name != "n1":
        leader.dead = True
        job.run(10)
        assert "n1" not in members(job)
    job.nodes["n1"].gate = FIT
    if leader.name != "n1":
        job.run_until(lambda: job.is_running(1))
        assert "n1" in members(job)


def test_a_new_leader_waits_for_a_verdict_anew_and_no_longer(tmp_path: Path) -> None:
    job = SimulatedJob(tmp_path, nodes=2, spares=1, gate=GateSettings(wait_s=5.0))
    job.nodes["n0"].awaits_gate = True
    job.run(4)
    leader = next(n for n in job.nodes.values() if n.coordinator.orders().is_leader)
    leader.dead = True
    job.run_until(lambda: job.is_running(0), 9.0)


def test_the_word_about_an_earlier_launcher_of_the_node_does_not_count(tmp_path: Path) -> None:
    job = SimulatedJob(tmp_path, nodes=2, spares=1, gate=GateSettings(wait_s=5.0))
    job.run_until(lambda: job.is_running(0))
    spoken = job.nodes["n1"].local_state
    job.nodes["n1"].local_state = lambda now: _of_another_launcher(spoken(now))  # type: ignore[method-assign]
    job.run(1)
    job.nodes["n0"].crash(0, -9, job.now)
    job.run_until(lambda: job.is_running(1))
    assert members(job) == ["n0", "n1"]


def _of_another_launcher(state):
    import dataclasses

    return dataclasses.replace(state, launcher_pid=77, gate=UNFIT)


def test_for_a_kept_out_node_s_health_check_nobody_waits(tmp_path: Path) -> None:
    job = SimulatedJob(tmp_path, nodes=2, spares=1, gate=GateSettings(wait_s=1000.0))
    job.run_until(lambda: job.is_running(0))
    job.ask("r", "restart", node="n1")
    job.run_until(lambda: job.is_running(1))
    job.nodes["n1"].awaits_gate = True
    job.nodes["n0"].crash(0, -9, job.now)
    job.run_until(lambda: job.is_running(2))
    assert members(job) == ["n0", "n2"]
