"""Ranks that srun, mpirun, Kubernetes and torchrun started, told by their environments alone."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from holdfast.contract import environment
from holdfast.contract.foreign_launch import attempt_of, find_seat, is_launcher, node_name, settle

ATTACHED = {environment.ATTACH: "1"}

SRUN = {
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "3",
    "SLURM_LOCALID": "1",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_NTASKS": "9",
}
MPIRUN = {
    "OMPI_COMM_WORLD_RANK": "2",
    "OMPI_COMM_WORLD_LOCAL_RANK": "0",
    "OMPI_COMM_WORLD_SIZE": "4",
}
TORCHRUN = {"RANK": "5", "LOCAL_RANK": "1", "WORLD_SIZE": "8"}


def seat(**environ: str) -> tuple[int, int, int] | None:
    found = find_seat(environ)
    return None if found is None else (found.rank, found.local_rank, found.world_size)


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        (SRUN, (3, 1, 4)),
        (MPIRUN, (2, 0, 4)),
        ({"PMI_RANK": "1", "MPI_LOCALRANKID": "1", "PMI_SIZE": "2"}, (1, 1, 2)),
        ({"RANK": "6", "WORLD_SIZE": "8"}, (6, 0, 8)),
        (TORCHRUN, (5, 1, 8)),
        ({**SRUN, **TORCHRUN}, (5, 1, 8)),
        ({**SRUN, **MPIRUN}, (2, 0, 4)),
        ({}, None),
        ({"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NTASKS": "4"}, None),
        ({**SRUN, "SLURM_LOCALID": "x"}, None),
    ],
)
def test_each_launcher_names_ranks_in_its_own_way(
    environ: dict[str, str], expected: tuple[int, int, int] | None
) -> None:
    assert seat(**ATTACHED, **environ) == expected


def test_only_a_job_that_is_attached_to_has_ranks_without_torchruns_names() -> None:
    assert seat(**SRUN) is None
    assert seat(**MPIRUN) is None
    assert seat(RANK="1") is None
    assert seat(**TORCHRUN) == (5, 1, 8)
    assert seat(LOCAL_RANK="2") == (2, 2, 1)


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (["python", "/usr/bin/torchrun", "train.py"], True),
        (["python", "-m", "torch.distributed.run", "train.py"], True),
        (["python", "-u", "-m", "accelerate.commands.launch", "train.py"], True),
        (["/venv/bin/python", "/venv/bin/holdfast", "run", "train.py"], True),
        (["python", "-X", "dev", "-m", "torch.distributed.run"], True),
        (["python", "-c", "import torch"], False),
        (["python", "-m", "torch.utils.collect_env"], False),
        (["python", "-u", "train.py", "--name", "torchrun"], False),
        (["python", "train.py", "-m", "torch.distributed.run"], False),
        (["python", "-m", "train"], False),
        ([], False),
    ],
)
def test_a_launcher_is_no_rank_though_it_has_a_ranks_environment(
    command: list[str], expected: bool
) -> None:
    assert is_launcher(command) is expected


def test_a_node_is_called_as_told_else_as_slurm_or_the_host_does() -> None:
    assert node_name({environment.NODE: "a.b", "SLURMD_NODENAME": "n1"}, "h") == "a.b"
    assert node_name({"SLURMD_NODENAME": "gpu_07"}, "h") == "gpu-07"
    assert node_name({}, "gpu-7.cluster.example") == "gpu-7"
    assert node_name({}, "...") == "node"


def test_a_restart_is_another_attempt_where_the_launcher_counts_them() -> None:
    assert attempt_of({}) == 0
    assert attempt_of({"SLURM_RESTART_COUNT": "2"}) == 2
    assert attempt_of({"SLURM_RESTART_COUNT": "2", "TORCHELASTIC_RESTART_COUNT": "1"}) == 1
    assert attempt_of({"SLURM_RESTART_COUNT": "x"}) == 0


def test_directories_are_named_after_the_node_and_closed_to_others(tmp_path: Path) -> None:
    environ = {
        environment.PAGE_DIR: str(tmp_path / "shm" / "job" / "{node}"),
        environment.EVIDENCE_DIR: str(tmp_path / "state" / "{node}" / "attempt-{attempt}"),
        environment.NODE: "n1",
        "SLURM_RESTART_COUNT": "1",
    }
    settle(environ)
    settle(environ)  # what it starts may come this way again
    assert environ[environment.PAGE_DIR] == str(tmp_path / "shm" / "job" / "n1")
    assert environ[environment.EVIDENCE_DIR] == str(tmp_path / "state" / "n1" / "attempt-1")
    for folder in (tmp_path / "shm", tmp_path / "shm/job", tmp_path / "shm/job/n1"):
        assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700


def test_evidence_that_was_kept_under_a_group_umask_keeps_no_rank_from_its_page(
    tmp_path: Path,
) -> None:
    kept = tmp_path / "state" / "job" / "n1" / "evidence"
    kept.mkdir(parents=True)
    for folder in (kept.parent.parent, kept.parent):
        folder.chmod(0o700)
    kept.chmod(0o775)
    template = str(kept.parent.parent / "{node}" / "evidence" / "attempt-{attempt}")
    environ = {environment.EVIDENCE_DIR: template, environment.NODE: "n1"}
    settle(environ)
    assert stat.S_IMODE(kept.stat().st_mode) == 0o775
    assert stat.S_IMODE((kept / "attempt-0").stat().st_mode) == 0o700
