"""Hardware that failed and that its driver then asks nothing for: new ranks are enough, and it is
the hardware's all the same."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from tests.unit.policy.ill_hardware import NOW, PLAN, cluster, crash, fault, ill, started

from holdfast_sidecar.config.settings import PolicySettings
from holdfast_sidecar.policy.budget import EXIT_REQUEUE
from holdfast_sidecar.policy.hardware import explained, unanswered
from holdfast_sidecar.records.findings import Finding, Remedy

CUDA = "RuntimeError: CUDA error: an illegal memory access was encountered"


def double_bit(**given: object) -> Finding:
    facts = {"what": "xid 48", "to_blame": "gpu", "since": NOW - 1}
    return fault(Remedy.RESTART_APP, **(facts | given))  # type: ignore[arg-type]


def test_lost_memory_is_not_the_application_s_because_its_gpu_goes_on() -> None:
    died = crash(signature=f"{CUDA} at step 9", is_of_script=True, evidence=[f"rank 1: {CUDA}"])
    told = explained(died, cluster(double_bit()), PLAN)
    assert (told.cause, told.culprit_ranks, told.gpu) == ("gpu", [1], "GPU-a1")
    assert (told.is_of_script, told.signature, told.remedy) == (False, "", "")
    assert told.evidence[0] == (
        "xid 48, GPU GPU-a1, rank 1: it is the hardware's, though new ranks are enough"
    )
    assert explained(told, cluster(double_bit()), PLAN) == told


def test_what_the_driver_asks_for_after_all_is_still_to_be_dealt_with() -> None:
    told = explained(crash(), cluster(double_bit()), PLAN)
    assert unanswered(cluster(double_bit(), incidents=(told,)), PLAN) == []
    more = dataclasses.replace(double_bit(), remedy=Remedy.RESET_GPU, acts=True)
    assert explained(told, cluster(more), PLAN).remedy == "reset_gpu"


def test_a_fault_of_which_nothing_is_told_acquits_nobody() -> None:
    """A copy engine that failed: it may be either's."""
    engine = fault(Remedy.RESTART_APP, what="xid 39")
    told = explained(crash(), cluster(engine), PLAN)
    assert (told.cause, told.is_of_script) == ("crash", False)
    assert told.evidence[-1].endswith("new ranks are enough, and whose fault it is was not told")


def test_the_same_death_by_lost_memory_again_and_again_is_no_bug_of_the_program(
    tmp_path: Path,
) -> None:
    policy = PolicySettings(budget=2, blames_limit=99)
    job = started(tmp_path, nodes=1, policy=policy)
    node = job.nodes["n0"]
    for attempt in range(3):
        job.run_until(lambda: job.is_running(attempt))  # noqa: B023
        while int(node.step) < 30:
            job.tick()
        node.ill = [ill(Remedy.RESTART_APP, job, what="xid 48", to_blame="gpu", acts=False)]
        node.crash(0, 1, job.now, CUDA)
        job.run_until(lambda: job.plan is not None and job.plan.state != "running")
    job.run_until(lambda: node.exit_code is not None)
    assert job.plan is not None
    assert (job.plan.exit_code, job.plan.attempt) == (EXIT_REQUEUE, 2)
    assert {incident.cause for incident in job.incidents()} == {"gpu"}
