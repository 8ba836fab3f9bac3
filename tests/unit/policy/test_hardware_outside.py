"""Nodes that are kept outside for ill hardware: how many, until when, and what lets them in."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from tests.unit.policy.ill_hardware import fault, ill, members, started

from holdfast_sidecar.config.settings import PolicySettings
from holdfast_sidecar.policy.quarantine import add, is_too_much
from holdfast_sidecar.records.findings import Remedy
from holdfast_sidecar.records.plan import Quarantine
from holdfast_sidecar.records.reports import AgentReport, GateVerdict


def test_a_reboot_ends_its_quarantine_and_another_start_of_the_sidecar_does_not(
    tmp_path: Path,
) -> None:
    job = started(tmp_path, nodes=2, spares=1)
    job.nodes["n1"].ill = [ill(Remedy.REBOOT_NODE, job)]
    job.run_until(lambda: job.is_running(1))
    job.nodes["n1"].ill = []
    job.run(5)
    assert job.plan is not None
    assert [one.node for one in job.plan.outside] == ["n1"]
    job.nodes["n1"].reboot()
    job.run(1)
    assert job.plan.outside == []
    job.nodes["n0"].dead = True
    job.run_until(lambda: job.is_running(2))
    assert sorted(members(job)) == ["n1", "n2"]


def test_a_gpu_that_was_reset_is_let_in_once_a_check_finds_it_fit(tmp_path: Path) -> None:
    job = started(tmp_path, nodes=2, spares=1)
    node = job.nodes["n1"]
    node.ill, node.gate = [ill(Remedy.RESET_GPU, job)], GateVerdict("fit", checked_unix_s=job.now)
    job.run_until(lambda: job.is_running(1))
    node.ill = []
    job.run(2)
    assert job.plan is not None
    assert len(job.plan.outside) == 1  # the check is of before
    node.gate = GateVerdict("unfit", ["GPU 0 needs a reset"], job.now, after=job.plan.incident)
    job.run(2)
    assert len(job.plan.outside) == 1
    incident = job.plan.outside[0].incident
    node.gate = GateVerdict("fit", checked_unix_s=job.now, after=incident)
    node.ill = [fault(Remedy.RESET_GPU, rank=0, gpu="GPU-0", since=job.now, acts=False)]
    job.run(2)
    assert len(job.plan.outside) == 1  # its engine still says so
    node.ill = []
    job.run(1)
    assert job.plan.outside == []


def test_a_later_check_does_without_the_word_that_it_was_meant_for_the_blame(
    tmp_path: Path,
) -> None:
    job = started(tmp_path, nodes=2, spares=1)
    job.nodes["n1"].ill = [ill(Remedy.RESET_GPU, job)]
    job.run_until(lambda: job.is_running(1))
    job.nodes["n1"].ill = []
    job.nodes["n1"].gate = GateVerdict("fit", checked_unix_s=job.now + 61)
    job.run(1)
    assert job.plan is not None
    assert job.plan.outside == []


def test_a_spare_that_only_works_takes_the_place_of_a_node_that_is_ill(tmp_path: Path) -> None:
    job = started(tmp_path, nodes=2, spares=1)
    job.nodes["n2"].gate = GateVerdict("unfit", ["pcie: GPU 0 is slow"], job.now, works=True)
    job.nodes["n1"].ill = [ill(Remedy.REBOOT_NODE, job)]
    job.run_until(lambda: job.is_running(1))
    assert members(job) == ["n0", "n2"]
    assert job.plan is not None
    assert [one.node for one in job.plan.outside] == ["n1"]


def test_a_quarantine_is_lifted_for_want_of_nodes_though_the_node_only_works(
    tmp_path: Path,
) -> None:
    job = started(tmp_path, nodes=2, spares=1)
    job.nodes["n1"].ill = [ill(Remedy.REPLACE, job)]
    job.run_until(lambda: job.is_running(1))
    assert members(job) == ["n0", "n2"]
    job.run(0.5)
    job.nodes["n1"].ill = []
    job.nodes["n1"].gate = GateVerdict("unfit", ["pcie: GPU 0 is slow"], job.now, works=True)
    job.nodes["n2"].dead = True
    job.run_until(lambda: job.is_running(2))
    assert members(job) == ["n0", "n1"]


def test_what_a_person_drained_stays_drained_whatever_falls_ill_there() -> None:
    drained = Quarantine("m", "a", 0.0, 9.0, by="ann", is_drained=True)
    blamed = Quarantine("m", "a", 1.0, 9.0, gpu="GPU-1", remedy="reset_gpu")
    assert add([drained], blamed) == [drained]
    assert add([blamed], drained) == [drained]


def test_what_has_to_be_replaced_no_reboot_mends(tmp_path: Path) -> None:
    job = started(tmp_path, nodes=2, spares=1)
    job.nodes["n1"].ill = [ill(Remedy.REPLACE, job)]
    job.run_until(lambda: job.is_running(1))
    job.nodes["n1"].reboot()
    job.run(1)
    assert job.plan is not None
    assert [one.remedy for one in job.plan.outside] == ["replace"]


def test_more_than_a_share_of_the_nodes_is_not_put_outside_and_that_is_told(tmp_path: Path) -> None:
    job = started(tmp_path, nodes=3, spares=3)
    for attempt, name in enumerate(("n0", "n1", "n2")):
        job.nodes[name].ill = [ill(Remedy.RESET_GPU, job, gpu=f"GPU-{name}")]
        job.run_until(lambda: job.is_running(attempt + 1))  # noqa: B023
        job.run(1)
    assert job.plan is not None
    assert [one.node for one in job.plan.outside] == ["n0", "n1"]
    assert "n2" in members(job)
    line = job.incidents()[-1].evidence[-1]
    assert line.endswith("but 2 of 6 nodes are outside already, and more share their trouble")


def test_beyond_that_share_the_gate_alone_keeps_a_node_out_and_the_job_goes_on(
    tmp_path: Path,
) -> None:
    job = started(tmp_path, nodes=3, spares=3)
    for attempt, name in enumerate(("n0", "n1", "n2")):
        node = job.nodes[name]
        node.ill = [ill(Remedy.REBOOT_NODE, job, gpu=f"GPU-{name}")]
        node.gate = GateVerdict("unfit", ["GPU 0 is lost"], job.now)
        job.run_until(lambda: job.is_running(attempt + 1))  # noqa: B023
        job.run(1)
    assert members(job) == ["n3", "n4", "n5"]
    assert job.plan is not None
    assert [one.node for one in job.plan.outside] == ["n0", "n1"]


def test_the_share_grows_with_the_job() -> None:
    agents = [AgentReport(f"n{n}", "i", "joining", 0, 1, 1, "", 1, 90) for n in range(50)]
    outside = [Quarantine(f"m{n}", f"n{n}", 0.0, 9.0) for n in range(5)]
    new = Quarantine("m9", "n9", 0.0, 9.0)
    assert is_too_much(outside[:4], new, agents, 0.1) == ""
    assert is_too_much(outside, new, agents, 0.1) != ""
    assert is_too_much(outside, new, agents, 0.2) == ""
    # Who a person keeps outside uses up nothing, and who is there anyway is not new.
    asked = [dataclasses.replace(one, by="ann") for one in outside]
    assert is_too_much(asked, new, agents, 0.1) == ""
    assert is_too_much(outside, outside[0], agents, 0.1) == ""


def test_hardware_that_fails_again_and_again_after_every_reset_is_a_lemon(tmp_path: Path) -> None:
    job = started(tmp_path, nodes=2, spares=1, policy=PolicySettings(backoff_s=0.1))
    for attempt in range(3):
        job.nodes["n1"].ill = [ill(Remedy.RESET_GPU, job, gpu=f"GPU-{attempt}")]
        job.run_until(lambda: not job.is_running(attempt * 2))  # noqa: B023
        job.run_until(lambda: job.is_running(attempt * 2 + 1))  # noqa: B023
        if attempt == 2:
            break
        job.nodes["n1"].reboot()
        job.run(1)
        # The place is n1's again when its deputy is gone for a moment.
        job.ask(f"q{attempt}", "restart", node="n2")
        job.run_until(lambda: job.is_running(attempt * 2 + 2))  # noqa: B023
        job.ask(f"l{attempt}", "resume", node="n2")
        job.run(1)
    assert job.plan is not None
    (one,) = [one for one in job.plan.outside if one.node == "n1"]
    assert one.remedy == "replace"
    last = job.incidents()[-1]
    assert any("3 failures within" in line for line in last.evidence)
