"""A rank that dies of its node's memory, and what is not blamed on it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from tests.unit.controller.simulated_job import SimulatedJob
from tests.unit.policy.ill_hardware import ill, members, started

from holdfast_sidecar.records.findings import Finding, Kind, Remedy


def failing_memory(job: SimulatedJob) -> Finding:
    kind = Kind.HOST_MEMORY_ERRORS
    found = ill(Remedy.REPLACE, job, kind=kind, gpu="", acts=False, what="uncorrected-1")
    return dataclasses.replace(found, ranks=[])


def test_a_rank_that_dies_of_its_hosts_memory_is_replaced_with_its_node(tmp_path: Path) -> None:
    job = started(tmp_path, nodes=2, spares=1)
    node = job.nodes["n1"]
    node.ill = [failing_memory(job)]
    job.run(2)
    assert job.is_running(0), "nobody has read what is lost"
    node.crash(0, -7, job.now)
    job.run_until(lambda: job.is_running(1))
    (incident,) = job.incidents()
    assert (incident.cause, incident.culprit_node, incident.remedy) == ("host", "n1", "replace")
    assert members(job) == ["n0", "n2"]


def test_a_node_that_can_t_be_spared_goes_on_with_the_memory_that_it_has_left(
    tmp_path: Path,
) -> None:
    """The kernel uses the page no more."""
    job = started(tmp_path, nodes=1)
    job.nodes["n0"].ill = [failing_memory(job)]
    job.nodes["n0"].crash(0, -7, job.now)
    job.run_until(lambda: job.is_running(1))
    (incident,) = job.incidents()
    assert (incident.cause, incident.decided) == ("host", "restart")


def test_memory_that_failed_long_before_explains_no_death(tmp_path: Path) -> None:
    job = started(tmp_path, nodes=1)
    old = failing_memory(job)
    job.nodes["n0"].ill = [old, dataclasses.replace(old, remedy=Remedy.NONE, what="uncorrected")]
    job.run(61)
    job.nodes["n0"].crash(0, -7, job.now)
    job.run_until(lambda: job.is_running(1))
    assert [incident.cause for incident in job.incidents()] == ["crash"]
