"""Faults of hardware that are told of only after a rank has died: who is blamed then."""

from __future__ import annotations

from pathlib import Path

from tests.unit.policy.ill_hardware import ill, members, started

from holdfast_sidecar.policy.budget import WITHOUT_NODE
from holdfast_sidecar.records.findings import Remedy


def test_an_xid_that_comes_after_the_death_is_blamed_before_the_restart_is_opened(
    tmp_path: Path,
) -> None:
    job = started(tmp_path, nodes=2, spares=1)
    job.nodes["n0"].obeys_every = 10**6  # its ranks take a while to end
    job.nodes["n1"].crash(0, -11, job.now)
    job.run(0.5)
    (incident,) = job.incidents()
    assert incident.cause == "crash"
    job.nodes["n1"].ill = [ill(Remedy.RESET_GPU, job)]
    job.run(0.3)
    job.nodes["n1"].ill = []  # its sidecar was started anew, and has forgotten
    job.run(0.3)
    assert job.nodes["n0"].state != "joining"
    job.nodes["n0"].obeys_every = 1
    job.run_until(lambda: job.is_running(1))
    assert members(job) == ["n0", "n2"]
    (incident,) = job.incidents()
    assert (incident.cause, incident.gpu, incident.escalation) == ("gpu", "GPU-0", WITHOUT_NODE)
    assert incident.seen_as == "crash"
    assert "rank 2: ended by SIGSEGV" in incident.evidence


def test_an_xid_that_comes_after_the_restart_takes_the_blame_off_the_script(
    tmp_path: Path,
) -> None:
    job = started(tmp_path, nodes=2, spares=1)
    job.nodes["n1"].crash(0, -11, job.now)
    job.run_until(lambda: job.plan is not None and job.plan.attempt == 1)
    job.nodes["n1"].ill = [ill(Remedy.RESET_GPU, job)]
    job.run_until(lambda: job.is_running(2))
    assert members(job) == ["n0", "n2"]
    first, second = job.incidents()
    assert (first.cause, first.gpu, first.signature) == ("gpu", "GPU-0", "")
    assert (second.cause, second.escalation) == ("gpu", WITHOUT_NODE)


def test_an_application_s_xid_that_comes_late_takes_the_blame_off_the_machine(
    tmp_path: Path,
) -> None:
    job = started(tmp_path, nodes=2)
    job.nodes["n1"].crash(0, -6, job.now)
    job.run_until(lambda: job.plan is not None and job.plan.attempt == 1)
    mmu_fault = ill(Remedy.RESTART_APP, job, what="xid 31", to_blame="application")
    job.nodes["n1"].ill = [mmu_fault]
    job.run_until(lambda: job.is_running(1))
    job.run(2)
    (incident,) = job.incidents()
    assert (incident.cause, incident.is_of_script, incident.seen_as) == ("crash", True, "")
    assert bool(incident.recovered_unix_s)
