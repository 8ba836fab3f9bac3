"""Trouble of a host has the job saved, once."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.controller.simulated_job import SimulatedJob
from tests.unit.controller.test_leader import started
from tests.unit.policy.test_preemption import change_state

from holdfast_sidecar.config.settings import CheckpointSettings
from holdfast_sidecar.controller.checkpoint_orders import REARMINGS
from holdfast_sidecar.policy.precaution import AGAIN_S, SHARED_S, Precautions, foretells
from holdfast_sidecar.records.findings import Finding, Kind, Remedy


def trouble(
    job: SimulatedJob,
    since: float,
    kind: Kind = Kind.MEMORY_PRESSURE,
    node: str = "n1",
    sure: float = 0.9,
) -> None:
    """A node finds something."""
    change_state(job.nodes[node], findings=[Finding(kind, node, since, sure)])


def no_trouble(job: SimulatedJob) -> None:
    change_state(job.nodes["n1"], findings=[])


def saved(job: SimulatedJob) -> list[str]:
    return [entry.requested_by for entry in job.storage.held.values()]


def seldom() -> CheckpointSettings:
    """A schedule that saves nothing meanwhile."""
    return CheckpointSettings(dir="/c", every_s=1e6)


def pressed(tmp_path: Path) -> SimulatedJob:
    """A job that was saved once, for pressure on n1 that goes on."""
    job = started(tmp_path, registered=True, checkpoint=seldom())
    trouble(job, since=job.now)
    job.run_until(lambda: len(job.storage.held) == 1)
    return job


def test_a_job_is_saved_when_a_host_runs_out_of_memory_and_only_once(tmp_path: Path) -> None:
    job = started(tmp_path, registered=True)
    trouble(job, since=job.now)
    since = round(job.now)
    job.run_until(lambda: bool(job.storage.held))
    job.run(10)
    assert saved(job) == [f"memory_pressure:n1:{since}"]
    assert job.checkpoint is not None
    assert job.checkpoint.trigger == "finding"


def test_the_same_trouble_again_much_later_is_another_reason_to_save(tmp_path: Path) -> None:
    job = pressed(tmp_path)
    no_trouble(job)
    job.now += AGAIN_S
    trouble(job, since=job.now)
    job.run_until(lambda: len(job.storage.held) == 2)


def test_pressure_that_hovers_at_its_threshold_has_the_job_saved_once(tmp_path: Path) -> None:
    job = pressed(tmp_path)
    for _ in range(int(AGAIN_S / 120) - 1):
        no_trouble(job)
        job.now += 60
        job.run(0.5)
        job.now += 60
        trouble(job, since=job.now)
        job.run(0.5)
    assert len(job.storage.held) == 1


def test_pressure_that_hovers_on_every_node_has_the_job_saved_once(tmp_path: Path) -> None:
    job = pressed(tmp_path)
    job.run(1)
    trouble(job, since=job.now, node="n0")
    job.run(10)
    assert len(job.storage.held) == 1
    job.now += SHARED_S
    job.run_until(lambda: len(job.storage.held) == 2)
    assert saved(job)[-1].startswith("memory_pressure:n0:")


def test_trouble_that_lasts_has_the_job_saved_again_after_an_hour(tmp_path: Path) -> None:
    job = pressed(tmp_path)
    job.now += AGAIN_S - 10
    job.run(5)
    assert len(job.storage.held) == 1
    job.run_until(lambda: len(job.storage.held) == 2)


def test_trouble_that_lasts_asks_for_nothing_where_the_schedule_saves_often(tmp_path: Path) -> None:
    job = pressed(tmp_path)
    job.now += AGAIN_S - 60
    job.ask("r1", "checkpoint")
    job.run_until(lambda: len(job.storage.held) == 2)
    job.now += 60
    job.run(10)
    assert saved(job)[1:] == ["r1"]


def test_trouble_that_becomes_worse_has_the_job_saved_again_and_only_once(tmp_path: Path) -> None:
    job = pressed(tmp_path)
    for sure in (0.95, 0.9, 0.95):
        job.run(5)
        trouble(job, since=job.now - 5, sure=sure)
        job.run(5)
    assert len(job.storage.held) == 2


def test_another_leader_does_not_save_again_for_what_was_saved_for(tmp_path: Path) -> None:
    job = pressed(tmp_path)
    no_trouble(job)
    for node in job.nodes.values():
        node.coordinator._leadership._checkpoints._precautions = Precautions()
    job.run(1)
    trouble(job, since=job.now)
    job.run(10)
    assert len(job.storage.held) == 1


def test_two_things_that_foretell_the_same_fault_have_the_job_saved_once(tmp_path: Path) -> None:
    job = started(tmp_path, registered=True)
    storm = Finding(Kind.ECC_STORM, "n1", job.now, 0.9, what="gpu3")
    pending = Finding(Kind.GPU_MEMORY_FAILING, "n1", job.now, 1.0, what="gpu3-remap-pending")
    change_state(job.nodes["n1"], findings=[storm, pending])
    job.run_until(lambda: bool(job.storage.held))
    job.run(20)
    assert [name.partition(":")[0] for name in saved(job)] == ["ecc_storm-gpu3"]


def test_a_save_of_before_the_onset_does_not_do_for_another_trouble(tmp_path: Path) -> None:
    job = started(tmp_path, registered=True)
    trouble(job, job.now)
    job.run_until(lambda: len(job.storage.held) == 1)
    job.run(1)
    change_state(
        job.nodes["n1"],
        findings=[Finding(Kind.DISK_FULL, "n1", job.now, 0.9, what="state")],
    )
    job.run_until(lambda: len(job.storage.held) == 2)
    assert saved(job)[-1].startswith("disk_full-state:n1:")


def test_a_save_of_after_the_onset_does_whatever_it_was_made_for(tmp_path: Path) -> None:
    job = started(tmp_path, registered=True)
    onset = job.now
    job.ask("r1", "checkpoint")
    job.run_until(lambda: len(job.storage.held) == 1)
    trouble(job, onset, Kind.MEMORY_PRESSURE)
    job.run(5)
    assert saved(job) == ["r1"]


def test_an_attempt_that_hardware_ends_does_not_wait_for_the_save_that_was_asked_for(
    tmp_path: Path,
) -> None:
    job = started(tmp_path, registered=True)
    trouble(job, job.now)
    job.run_until(lambda: job.checkpoint is not None and job.checkpoint.state == "armed")
    ill = Finding(
        Kind.GPU_FAULT,
        "n1",
        job.now,
        0.95,
        [3],
        acts=True,
        gpu="GPU-1",
        remedy=Remedy.RESET_GPU,
    )
    pressed = Finding(Kind.MEMORY_PRESSURE, "n1", job.now, 0.9)
    change_state(job.nodes["n1"], findings=[pressed, ill])
    job.run_until(lambda: job.plan is not None and job.plan.state != "running", seconds=1.0)
    assert job.storage.held == {}


def test_a_checkpoint_that_came_too_late_for_a_rank_is_tried_again(tmp_path: Path) -> None:
    """As where the machine is busy: the save is wanted none the less."""
    job = started(tmp_path, registered=True)
    job.misses = 2
    since = round(job.now)
    trouble(job, since=job.now)
    job.run_until(lambda: bool(job.storage.held), 60.0)
    assert saved(job) == [f"memory_pressure:n1:{since}"]


def test_a_checkpoint_that_came_to_nothing_is_not_tried_for_ever(tmp_path: Path) -> None:
    job = started(tmp_path, registered=True)
    job.misses = 100
    trouble(job, since=job.now)
    job.run(60)
    assert job.checkpoint is not None
    assert job.checkpoint.state == "void"
    assert 100 - job.misses == 2 * (1 + REARMINGS), "on each of two nodes"
    assert job.storage.held == {}


def test_a_checkpoint_that_came_to_nothing_is_tried_again_after_a_while(tmp_path: Path) -> None:
    job = started(tmp_path, registered=True, checkpoint=seldom())
    job.misses = 100
    trouble(job, since=job.now)
    job.run(60)
    job.misses = 0
    job.now += SHARED_S
    job.run_until(lambda: len(job.storage.held) == 1)


def test_a_job_that_registered_nothing_is_not_asked_to_save(tmp_path: Path) -> None:
    job = started(tmp_path, registered=False)
    trouble(job, since=job.now)
    job.run(5)
    assert job.checkpoint is None


@pytest.mark.parametrize(
    ("kind", "what", "is_so"),
    [
        (Kind.MEMORY_PRESSURE, "", True),
        (Kind.DISK_FULL, "state", True),
        (Kind.ECC_STORM, "gpu3", True),
        (Kind.GPU_MEMORY_FAILING, "gpu3-no-spare-rows", True),
        (Kind.GPU_LINK_DEGRADED, "gpu3-pcie-replays", False),
        (Kind.GPU_THROTTLED, "gpu3-hot", False),
        (Kind.DISK_FULL, "checkpoint", False),
        (Kind.STRAGGLER, "", False),
        (Kind.NONFINITE, "", False),
    ],
)
def test_what_has_the_job_saved(kind: Kind, what: str, is_so: bool) -> None:
    assert foretells(Finding(kind, "n1", 1.0, 0.9, what=what)) is is_so


@pytest.mark.parametrize("kind", [Kind.HOST_MEMORY_ERRORS, Kind.HOST_HOT])
def test_a_host_whose_parts_begin_to_fail_has_the_job_saved(tmp_path: Path, kind: Kind) -> None:
    job = started(tmp_path, registered=True)
    trouble(job, job.now, kind)
    since = round(job.now)
    job.run_until(lambda: bool(job.storage.held))
    assert saved(job) == [f"{kind.value}:n1:{since}"]


@pytest.mark.parametrize("kind", [Kind.STORAGE_STALLED, Kind.HUNG_TASK, Kind.CLOCK_OFF])
def test_what_a_checkpoint_would_hang_on_or_not_help_against_asks_for_none(kind: Kind) -> None:
    assert not foretells(Finding(kind, "n1", 0.0, 0.9))


def test_a_link_that_flaps_again_and_again_has_the_job_saved_and_one_flap_does_not(
    tmp_path: Path,
) -> None:
    job = started(tmp_path, registered=True)
    once = Finding(Kind.LINK_FLAPPING, "n1", job.now, 0.5, what="mlx5_0/1")
    change_state(job.nodes["n1"], findings=[once])
    job.run(5)
    assert job.storage.held == {}
    often = Finding(Kind.LINK_FLAPPING, "n1", job.now, 0.9, what="mlx5_0/1")
    change_state(job.nodes["n1"], findings=[often])
    job.run_until(lambda: bool(job.storage.held))
    assert saved(job)[0].startswith("link_flapping-mlx5_0/1:n1:")


def test_a_link_whose_errors_grow_has_the_job_saved(tmp_path: Path) -> None:
    job = started(tmp_path, registered=True)
    drift = Finding(Kind.LINK_DEGRADED, "n1", job.now, 0.8, what="errors of mlx5_0/1")
    change_state(job.nodes["n1"], findings=[drift])
    job.run_until(lambda: bool(job.storage.held))
    assert saved(job)[0].startswith("link_degraded-errors of mlx5_0/1:n1:")
