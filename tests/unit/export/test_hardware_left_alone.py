"""Ill hardware that may not be acted on: recorded, suggested, and blamed all the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.policy.ill_hardware import ill, members, started

from holdfast_sidecar.config.settings import ModeSettings
from holdfast_sidecar.export.status import judge
from holdfast_sidecar.records.findings import Kind, Remedy
from holdfast_sidecar.store.memory_store import MemoryStore


@pytest.mark.parametrize("mode", ["suggest", "observe"])
def test_where_it_may_not_be_acted_on_it_is_recorded_and_closed_when_it_is_over(
    tmp_path: Path, mode: str
) -> None:
    job = started(tmp_path, nodes=2, spares=1, modes=ModeSettings(gpu=mode))
    job.nodes["n1"].ill = [ill(Remedy.RESET_GPU, job)]
    job.run(2)
    assert job.is_running(0)
    (incident,) = job.incidents()
    assert (incident.cause, incident.decided, incident.gpu) == ("gpu", mode, "GPU-0")
    assert incident.evidence[-1] == f"would have restarted the job, but the mode is {mode}"
    job.nodes["n1"].ill = []
    job.run(1)
    assert job.incidents()[0].recovered_unix_s


def test_where_it_is_left_to_people_they_read_the_command_that_does_without_the_node(
    tmp_path: Path,
) -> None:
    job = started(tmp_path, nodes=2, spares=1, modes=ModeSettings(gpu="suggest"))
    before = MemoryStore(job.server).read()
    job.nodes["n1"].ill = [ill(Remedy.RESET_GPU, job)]
    job.run(2)
    assert judge("job", before, MemoryStore(job.server).read()).suggestion == (
        "`holdfast restart --no-save --without n1`, for the ill GPU of rank 2 on node n1"
    )


@pytest.mark.parametrize(
    ("remedy", "kind", "what_is_saved"),
    [
        (Remedy.RESET_GPU, Kind.GPU_FAULT, ""),
        (Remedy.REBOOT_NODE, Kind.GPU_FAULT, " --no-save"),  # as off the bus
        (Remedy.RESET_GPU, Kind.GPU_LOST, " --no-save"),
    ],
)
def test_the_command_saves_first_where_the_gpu_can_still_be_read(
    tmp_path: Path, remedy: Remedy, kind: Kind, what_is_saved: str
) -> None:
    modes = ModeSettings(gpu="suggest")
    job = started(tmp_path, nodes=2, spares=1, modes=modes, registered=True)
    before = MemoryStore(job.server).read()
    job.nodes["n1"].ill = [ill(remedy, job, kind=kind)]
    job.run(2)
    assert judge("job", before, MemoryStore(job.server).read()).suggestion == (
        f"`holdfast restart{what_is_saved} --without n1`, for the ill GPU of rank 2 on node n1"
    )


def test_a_restart_without_the_node_is_not_suggested_where_no_other_is_there(
    tmp_path: Path,
) -> None:
    job = started(tmp_path, nodes=1, modes=ModeSettings(gpu="suggest"))
    before = MemoryStore(job.server).read()
    job.nodes["n0"].ill = [ill(Remedy.RESET_GPU, job)]
    job.run(2)
    assert judge("job", before, MemoryStore(job.server).read()).suggestion == (
        "`holdfast restart --no-save`, for the ill GPU of rank 0 on node n0"
    )


def test_a_rank_that_dies_of_what_was_not_acted_on_is_blamed_on_it(tmp_path: Path) -> None:
    job = started(tmp_path, nodes=2, spares=1, modes=ModeSettings(gpu="observe"))
    job.nodes["n1"].ill = [ill(Remedy.RESET_GPU, job)]
    job.run(2)
    job.nodes["n1"].crash(0, -6, job.now)
    job.run_until(lambda: job.is_running(1))
    assert members(job) == ["n0", "n2"]
    assert {incident.cause for incident in job.incidents()} == {"gpu"}


def test_a_pause_holds_for_hardware_too(tmp_path: Path) -> None:
    job = started(tmp_path, nodes=2, spares=1)
    job.ask("p", "pause", for_s=60.0)
    job.run(1)
    job.nodes["n1"].ill = [ill(Remedy.RESET_GPU, job)]
    job.run(5)
    assert job.is_running(0)
    assert [incident.decided for incident in job.incidents()] == ["paused"]
    job.ask("r", "resume")
    job.run_until(lambda: job.is_running(1))
    assert members(job) == ["n0", "n2"]
