"""How a job goes on when its hardware is ill: who is to blame, in place or without the node."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from tests.unit.policy.ill_hardware import NOW, PLAN, cluster, crash, fault, ill, members, started

from holdfast_sidecar.policy.budget import EXIT_REQUEUE, WITHOUT_NODE
from holdfast_sidecar.policy.hardware import STILL_RAN, explained, name_fault, unanswered
from holdfast_sidecar.records.findings import Kind, Remedy, parse_remedy
from holdfast_sidecar.records.reports import GateVerdict


def test_the_exit_of_a_rank_whose_gpu_is_ill_is_no_bug_that_repeats(tmp_path: Path) -> None:
    job = started(tmp_path, nodes=2)
    for attempt in range(2):
        job.run_until(lambda: job.is_running(attempt))  # noqa: B023
        while int(job.nodes["n1"].step) < 30:
            job.tick()
        mmu = fault(Remedy.RESET_GPU, rank=0, since=job.now, acts=False)
        job.nodes["n1"].ill = [mmu]
        job.nodes["n1"].crash(0, -11, job.now)
        job.run_until(lambda: job.plan is not None and job.plan.state != "running")
        job.run(1)
        job.nodes["n1"].ill = []
        if job.plan is not None and job.plan.state == "stopped":
            break
    assert job.plan is not None
    # Not the exit code of a bug: the GPU was tried once in place, and no other node is there.
    assert job.plan.exit_code == EXIT_REQUEUE
    assert {incident.cause for incident in job.incidents()} == {"gpu"}


def test_a_gpu_off_the_bus_ends_the_attempt_while_its_rank_hangs_and_a_spare_takes_over(
    tmp_path: Path,
) -> None:
    job = started(tmp_path, nodes=2, spares=1)
    job.nodes["n1"].ill = [ill(Remedy.REBOOT_NODE, job, 1)]
    job.run_until(lambda: job.is_running(1))
    assert members(job) == ["n0", "n2"]
    (incident,) = job.incidents()
    assert (incident.cause, incident.culprit_node, incident.culprit_ranks) == ("gpu", "n1", [3])
    assert (incident.gpu, incident.culprit_part) == ("GPU-1", "machine-of-n1")
    assert incident.escalation == WITHOUT_NODE
    assert {"n0", "n1"} <= set(incident.kept_by)
    assert STILL_RAN in incident.evidence
    assert job.plan is not None
    (one,) = job.plan.outside
    assert (one.node, one.gpu, one.remedy, one.boot) == (
        "n1",
        "GPU-1",
        "reboot_node",
        "boot-of-n1",
    )
    assert one.incident == incident.identifier
    assert one.evidence[0] == "node n1 needs a reboot for its GPU GPU-1"
    job.run(20)
    assert job.is_running(1)


def test_where_its_own_check_finds_a_node_unfit_nothing_is_tried_in_place(tmp_path: Path) -> None:
    job = started(tmp_path, nodes=1)
    node = job.nodes["n0"]
    node.ill = [ill(Remedy.RESET_GPU, job)]
    node.gate = GateVerdict("unfit", ["GPU 0 needs a reset"], job.now)
    job.run_until(lambda: node.exit_code is not None)
    assert job.plan is not None
    assert (job.plan.exit_code, job.plan.attempt) == (EXIT_REQUEUE, 0)


def test_a_gpu_that_needs_a_reset_is_tried_in_place_though_its_gate_knows_of_it(
    tmp_path: Path,
) -> None:
    job = started(tmp_path, nodes=1)
    node = job.nodes["n0"]
    node.ill = [ill(Remedy.RESET_GPU, job)]
    node.gate = GateVerdict("unfit", ["gpu faults: Xid 95 (reset gpu)"], job.now, works=True)
    job.run_until(lambda: job.is_running(1))


def test_what_is_tried_in_place_goes_on_from_the_snapshots_in_memory(tmp_path: Path) -> None:
    job = started(tmp_path, nodes=1, snapshots=True, registered=True, every_steps=0)
    node = job.nodes["n0"]
    job.run(5)
    reached = int(node.step)
    node.ill = [ill(Remedy.RESET_GPU, job, what="gpu0-recovery")]
    node.gate = GateVerdict("unfit", ["recovery: GPU 0 needs a reset"], job.now, works=True)
    job.run_until(lambda: job.is_running(1))
    assert job.plan is not None
    assert job.plan.resume[0].tier == "snapshot"
    assert node.resumed >= reached > 0


def test_no_sign_of_trouble_is_told_from_before_the_attempt(tmp_path: Path) -> None:
    job = started(tmp_path, nodes=2, spares=1)
    assert job.plan is not None
    began = job.plan.began_unix_s
    old = dataclasses.replace(ill(Remedy.RESET_GPU, job), since_unix_s=job.now - 200)
    job.nodes["n1"].ill = [old, ill(Remedy.RESET_GPU, job, what="gpu0-recovery")]
    job.run_until(lambda: job.is_running(1))
    (incident,) = job.incidents()
    assert incident.evidence[0].startswith("gpu0-recovery")
    assert incident.since_unix_s >= began > 0


def test_where_no_other_node_is_there_a_lost_link_is_gone_on_with(tmp_path: Path) -> None:
    """It may be any of the node's: the one to its leader, at least, is up."""
    job = started(tmp_path, nodes=2)
    node = job.nodes["n1"]
    lost = ill(Remedy.REPLACE, job, kind=Kind.LINK_DOWN, gpu="", acts=False, what="eth3")
    node.ill = [dataclasses.replace(lost, ranks=[])]
    node.gate = GateVerdict("unfit", ["links: eth3 has no link"], job.now, works=True)
    node.crash(0, -9, job.now)
    job.run_until(lambda: job.is_running(1))
    (incident,) = job.incidents()
    assert (incident.cause, incident.remedy) == ("link", "replace")
    assert "too few nodes would be left" in incident.evidence[-1]


def test_people_are_told_the_number_of_a_gpu_where_it_is_known(tmp_path: Path) -> None:
    known = fault(gpu_index=3)
    named = name_fault(unanswered(cluster(known), PLAN), PLAN)
    assert named is not None
    assert named.evidence[0] == "xid 79, GPU 3, rank 1: its node needs a reboot"
    assert named.gpu == "GPU-a1"
    job = started(tmp_path, nodes=2, spares=1)
    job.nodes["n1"].ill = [ill(Remedy.RESET_GPU, job, gpu_index=3)]
    job.run_until(lambda: job.is_running(1))
    assert job.plan is not None
    (one,) = job.plan.outside
    assert (one.evidence[0], one.gpu) == ("GPU 3 of node n1 needs a reset", "GPU-0")


def test_a_gpu_that_may_work_until_its_reset_is_tried_once_in_place_and_then_the_job_stops(
    tmp_path: Path,
) -> None:
    """One node of two GPUs, and no other: what else could be done?"""
    job = started(tmp_path, nodes=1)
    job.nodes["n0"].ill = [ill(Remedy.RESET_GPU, job)]
    job.run_until(lambda: job.is_running(1))
    (first,) = job.incidents()
    assert first.evidence[-1] == (
        "would have kept node n0 outside (GPU GPU-0 of node n0 needs a reset), but too few nodes"
        " would be left"
    )
    job.run(10)
    assert job.is_running(1)  # still ill, and known to be
    job.nodes["n0"].crash(0, -6, job.now)
    job.run_until(lambda: all(n.exit_code is not None for n in job.nodes.values()))
    assert job.plan is not None
    assert job.plan.exit_code == EXIT_REQUEUE
    assert job.plan.message == (
        "GPU GPU-0 of node n0 needs a reset, and too few nodes would be left"
    )
    assert [one.remedy for one in job.plan.outside] == ["reset_gpu"]
    assert job.plan.attempt == 1


@pytest.mark.parametrize(
    "findings",
    [[Remedy.REBOOT_NODE], [Remedy.REPLACE], [Remedy.RESET_GPU, Kind.GPU_LOST]],
    ids=["reboot", "replace", "lost"],
)
def test_on_a_gpu_that_is_gone_nothing_is_tried(tmp_path: Path, findings: list[object]) -> None:
    job = started(tmp_path, nodes=1)
    for one in findings:
        remedy = one if isinstance(one, Remedy) else Remedy.RESET_GPU
        kind = Kind.GPU_LOST if one is Kind.GPU_LOST else Kind.GPU_FAULT
        job.nodes["n0"].ill.append(ill(remedy, job, kind=kind, what=str(one)))
    job.run_until(lambda: all(n.exit_code is not None for n in job.nodes.values()))
    assert job.plan is not None
    assert (job.plan.exit_code, job.plan.attempt) == (EXIT_REQUEUE, 0)
    assert job.incidents()[-1].stopped_for == job.plan.message


def test_two_gpus_on_two_nodes_at_once_cost_one_restart(tmp_path: Path) -> None:
    job = started(tmp_path, nodes=3, spares=2)
    job.nodes["n1"].ill = [ill(Remedy.REBOOT_NODE, job)]
    job.nodes["n2"].ill = [ill(Remedy.RESET_GPU, job)]
    job.run_until(lambda: job.is_running(1))
    assert members(job) == ["n0", "n3", "n4"]
    assert job.plan is not None
    assert {one.node: one.remedy for one in job.plan.outside} == {
        "n1": "reboot_node",
        "n2": "reset_gpu",
    }
    (incident,) = job.incidents()
    assert any("node n2 is kept outside from now on" in line for line in incident.evidence)


def test_a_remedy_of_a_newer_version_is_the_gravest_and_breaks_nothing(tmp_path: Path) -> None:
    assert parse_remedy("melt_down") is Remedy.REPLACE
    assert parse_remedy("") is Remedy.NONE
    newer = crash(cause="gpu", gpu="GPU-a1", remedy="melt_down", fault_unix_s=NOW)
    assert explained(newer, cluster(fault()), PLAN).remedy == "replace"
    known = dataclasses.replace(newer, decided="restart")
    assert unanswered(cluster(fault(), incidents=(known,)), PLAN) == []


def test_a_leader_that_comes_in_between_decides_the_same(tmp_path: Path) -> None:
    """It was n1's sidecar that led, and n1 whose GPU is ill; its finding dies with it."""
    job = started(tmp_path, nodes=2, spares=1)
    leader = next(n for n in job.nodes.values() if n.coordinator.orders().is_leader)
    other = next(n for n in job.nodes.values() if n.name in members(job) and n is not leader)
    other.ill = [ill(Remedy.REBOOT_NODE, job)]
    job.run_until(lambda: job.plan is not None and job.plan.state in ("evidence", "ended"))
    other.ill = []
    leader.coordinator._store.resign(f"{leader.name}/{leader.incarnation}")
    job.run_until(lambda: job.is_running(1))
    assert other.name not in members(job)
    (incident,) = job.incidents()
    assert (incident.cause, incident.culprit_node) == ("gpu", other.name)
