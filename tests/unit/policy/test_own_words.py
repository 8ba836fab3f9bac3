"""What a program says it died of weighs more than hardware that merely stands ill beside it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from tests.unit.policy.ill_hardware import NOW, PLAN, cluster, crash, fault, ill, members, started

from holdfast_sidecar.policy.budget import EXIT_DO_NOT_REQUEUE
from holdfast_sidecar.policy.hardware import explained
from holdfast_sidecar.policy.signature import BESIDE, are_programs_own
from holdfast_sidecar.records.findings import Finding, Kind, Remedy
from holdfast_sidecar.records.plan import Incident

BUG = "ValueError: my own bug"


def raised(words: str = BUG, **given: object) -> Incident:
    facts = {
        "confidence": 0.9,
        "signature": f"{words} at step 9",
        "is_of_script": True,
        "evidence": ["process 7 exited with code 1 in forward, step 9", f"last words: {words}"],
    }
    return crash(**(facts | given))


def link(**given: object) -> Finding:
    facts = {"kind": Kind.LINK_DOWN, "gpu": "", "ranks": [], "acts": False, "what": "mlx5_1"}
    return fault(Remedy.REPLACE, **(facts | given))  # type: ignore[arg-type]


def pending(**given: object) -> Finding:
    facts = {"kind": Kind.GPU_MEMORY_FAILING, "acts": False, "what": "gpu1-remap-pending"}
    return fault(Remedy.RESET_GPU, **(facts | given))  # type: ignore[arg-type]


BAD_DIMM = fault(Remedy.REPLACE, kind=Kind.HOST_MEMORY_ERRORS, gpu="", ranks=[], acts=False)
DRAIN = fault(Remedy.RESET_GPU, acts=False, what="gpu1-recovery")


@pytest.mark.parametrize(
    "words",
    [
        BUG,
        "TypeError: f() missing 1 required positional argument",
        "KeyError: 'input_ids'",
        "AttributeError: 'NoneType' object has no attribute 'shape'",
        "IndexError: list index out of range",
        "AssertionError",
        "ZeroDivisionError: division by zero",
        "NameError: name 'x' is not defined",
        "ModuleNotFoundError: No module named 'flash_attn'",
        "FileNotFoundError: [Errno 2] No such file or directory: 'train.bin'",
    ],
)
def test_words_that_no_hardware_says(words: str) -> None:
    assert are_programs_own(words)


@pytest.mark.parametrize(
    "words",
    [
        "",
        "RuntimeError: CUDA error: an illegal memory access was encountered",
        "RuntimeError: NCCL error: unhandled system error",
        "DistBackendError: NCCL error in ProcessGroupNCCL.cpp:268",
        "AcceleratorError: CUDA error: uncorrectable ECC error encountered",
        "ValueError: CUDA error: unspecified launch failure",
        "AssertionError: CUBLAS_STATUS_EXECUTION_FAILED",
        "OSError: [Errno 5] Input/output error",
        "ConnectionResetError: [Errno 104] Connection reset by peer",
        "TimeoutError: no answer",
        "MemoryError",
        "RuntimeError: expected a tensor",
        "ended by SIGSEGV",
        "MyValueError: of a class that nobody knows",
    ],
)
def test_words_that_hardware_may_be_behind(words: str) -> None:
    assert not are_programs_own(words)


@pytest.mark.parametrize("beside", [link(since=NOW - 16), pending(), BAD_DIMM, DRAIN])
def test_a_program_s_own_exception_is_not_what_stands_ill_beside_it(beside: Finding) -> None:
    told = explained(raised(), cluster(beside), PLAN)
    assert (told.cause, told.culprit_ranks, told.is_of_script) == ("crash", [1], True)
    assert (told.signature, told.remedy, told.gpu) == (f"{BUG} at step 9", "", "")
    assert told.evidence[:2] == raised().evidence
    assert told.evidence[2].startswith(BESIDE)
    assert explained(told, cluster(beside), PLAN) == told


def test_a_bug_that_strikes_all_ranks_alike_is_no_guess_that_hardware_explains() -> None:
    alike = raised(confidence=0.45)
    assert explained(alike, cluster(link(node="b")), PLAN).cause == "crash"


@pytest.mark.parametrize(
    "broken",
    [
        fault(Remedy.RESET_GPU, since=NOW - 1, what="xid 95", to_blame="gpu"),
        fault(Remedy.RESET_GPU, what="xid 95", to_blame="gpu", acts=False, rank_confidence=0.6),
        fault(kind=Kind.GPU_LOST),
        fault(kind=Kind.GPU_LOST, acts=False),
    ],
    ids=["an XID", "an XID of a GPU that is likely its own", "lost", "lost, likely its own"],
)
def test_what_the_hardware_made_impossible_still_explains_it(broken: Finding) -> None:
    told = explained(raised(), cluster(broken), PLAN)
    assert (told.cause, told.signature, told.is_of_script) == ("gpu", "", False)


@pytest.mark.parametrize(
    "words",
    ["RuntimeError: CUDA error: an illegal memory access was encountered", "ended by SIGBUS"],
)
def test_an_end_that_may_be_the_hardware_s_is_explained_by_it(words: str) -> None:
    told = explained(raised(words), cluster(pending()), PLAN)
    assert (told.cause, told.remedy) == ("gpu", "reset_gpu")


def test_nobody_is_surer_of_a_gpu_than_of_whose_it_is() -> None:
    guessed = pending(confidence=1.0, rank_confidence=0.6)
    segfault = crash()
    assert explained(segfault, cluster(guessed), PLAN).confidence == 0.6
    assert explained(segfault, cluster(pending(confidence=0.9)), PLAN).confidence == 0.9


def test_a_bug_beside_a_lost_link_ends_the_job_as_a_bug_and_keeps_no_node_outside(
    tmp_path: Path,
) -> None:
    job = started(tmp_path, nodes=2, spares=1)
    for attempt in (0, 1):
        job.run_until(lambda: job.is_running(attempt))  # noqa: B023
        at = members(job)[1]
        while int(job.nodes[at].step) < 60:
            job.tick()
        down = ill(Remedy.REPLACE, job, kind=Kind.LINK_DOWN, gpu="", acts=False, what="mlx5_1")
        job.nodes[at].ill = [dataclasses.replace(down, ranks=[])]
        job.nodes[at].crash(0, 1, job.now, BUG)
        job.run(1)
    job.run_until(lambda: all(n.exit_code is not None for n in job.nodes.values()))
    assert job.plan is not None
    assert (job.plan.exit_code, job.plan.outside) == (EXIT_DO_NOT_REQUEUE, [])
    assert [one.cause for one in job.incidents()] == ["crash", "crash"]
    assert all(any(BESIDE in line for line in one.evidence) for one in job.incidents())


def test_a_bug_on_a_gpu_whose_rows_wait_to_be_remapped_ends_the_job_as_a_bug(
    tmp_path: Path,
) -> None:
    job = started(tmp_path, nodes=1)
    node = job.nodes["n0"]
    node.ill = [ill(Remedy.RESET_GPU, job, kind=Kind.GPU_MEMORY_FAILING, acts=False)]
    for attempt in (0, 1):
        job.run_until(lambda: job.is_running(attempt))  # noqa: B023
        while int(node.step) < 60:
            job.tick()
        node.crash(0, 1, job.now, BUG)
        job.run(1)
    job.run_until(lambda: node.exit_code is not None)
    assert job.plan is not None
    assert job.plan.exit_code == EXIT_DO_NOT_REQUEUE


def test_words_that_a_launcher_hears_late_take_the_blame_off_the_hardware(tmp_path: Path) -> None:
    job = started(tmp_path, nodes=2, spares=1)
    node = job.nodes["n1"]
    node.ill = [ill(Remedy.RESET_GPU, job, kind=Kind.GPU_MEMORY_FAILING, acts=False)]
    job.nodes["n0"].obeys_every = 10**6  # its ranks take a while to end
    node.crash(0, 1, job.now)
    job.run(0.5)
    (incident,) = job.incidents()
    assert incident.cause == "gpu"
    node.exits = [dataclasses.replace(one, message=BUG) for one in node.exits]
    job.run(0.3)
    job.nodes["n0"].obeys_every = 1
    job.run_until(lambda: job.is_running(1))
    (incident,) = job.incidents()
    assert (incident.cause, incident.is_of_script, incident.remedy) == ("crash", True, "")
    assert incident.signature.startswith(BUG)
    assert job.plan is not None
    assert job.plan.outside == []
