"""Who may be on a rank's GPU, and who may not."""

from __future__ import annotations

import dataclasses

import pytest
from tests.unit.components.gpu.nodes import company, found, gpu, seat, troubles, watched

from holdfast_sidecar.components.gpu.ownership import GpuProcess, GpuUsers
from holdfast_sidecar.components.gpu.readings import Gpu
from holdfast_sidecar.records.findings import Kind

RANK = seat(0)


def beside(process: GpuProcess, sees_all: bool = True) -> GpuUsers:
    return company(RANK, processes=[process], sees_all=sees_all)


def used_by(pid: int) -> Gpu:
    return gpu(0, users=[1000, pid])


STRANGER = GpuProcess(7777, "miner", 5, (1500, 1200))


def test_a_stranger_on_a_ranks_gpu_is_told_once_it_stays() -> None:
    scene = watched(lambda _: [used_by(7777)], 5, who=beside(STRANGER))
    assert troubles(scene) == []
    (finding,) = found(watched(lambda _: [used_by(7777)], 15, who=beside(STRANGER)))
    assert (finding.kind, finding.what, finding.ranks) == (Kind.GPU_SHARED, "gpu0-pid7777", [0])
    assert (
        "miner (pid 7777) computes on it, with 60.0 GiB: it is no process of this job"
        in (finding.evidence[0])
    )


@pytest.mark.parametrize(
    "process",
    [
        GpuProcess(7777, "pt_data_worker", 90, (1000, 900)),
        GpuProcess(7777, "holdfast", 90, (900,)),
        GpuProcess(7777, "nvidia-cuda-mps", 1, (1,)),
        GpuProcess(7777, "nv-hostengine", 1, (1,)),
    ],
)
def test_ranks_helpers_and_the_drivers_own_services_belong_there(process: GpuProcess) -> None:
    assert troubles(watched(lambda _: [used_by(7777)], 30, who=beside(process))) == []


def test_a_rank_of_an_earlier_attempt_that_did_not_go_is_told_as_such() -> None:
    left = GpuProcess(7777, "python", RANK.start_ticks - 10, (900,))
    (finding,) = found(watched(lambda _: [used_by(7777)], 30, who=beside(left)))
    assert finding.evidence[0].endswith("left over from an earlier attempt")


def test_a_gpu_that_is_no_ranks_may_be_anybodys() -> None:
    scene = watched(lambda _: [gpu(0), gpu(1, users=[7777])], 30, who=beside(STRANGER))
    assert troubles(scene) == []


def test_where_pids_are_counted_otherwise_nobody_is_called_a_stranger() -> None:
    """In a container the driver names pids of the host, so that every rank looks foreign."""
    hidden = dataclasses.replace(beside(STRANGER, sees_all=False), seats=(seat(0, {}),))
    scene = watched(lambda _: [gpu(0, users=[7777])], 30, who=hidden)
    assert scene.ownership.ranks_of(gpu(0).uuid) == [0]
    assert troubles(scene) == []
    named = watched(lambda _: [used_by(7777)], 30, who=beside(STRANGER, sees_all=False))
    assert [what for _, what in troubles(named)] == ["gpu0-pid7777"]


def test_a_process_that_can_not_be_seen_any_more_is_not_called_a_stranger() -> None:
    assert troubles(watched(lambda _: [used_by(7777)], 30, who=company(RANK))) == []


def test_memory_that_nobody_holds_is_told_after_a_while() -> None:
    who = company(seat(0, {"CUDA_VISIBLE_DEVICES": "0"}))
    assert troubles(watched(lambda _: [gpu(0, users=())], 20, who=who)) == []
    (finding,) = found(watched(lambda _: [gpu(0, users=())], 40, who=who))
    assert finding.what == "gpu0-memory"
    assert "60.0 GiB of its memory are in use, and by no process" in finding.evidence[0]
    free = watched(lambda _: [gpu(0, users=(), MEMORY_USED=6e8)], 40, who=who)
    assert troubles(free) == []


def test_a_driver_that_names_no_processes_says_nothing_of_sharing() -> None:
    silent = dataclasses.replace(gpu(0), users=None)
    who = company(seat(0, {"CUDA_VISIBLE_DEVICES": "0"}))
    assert troubles(watched(lambda _: [silent], 40, who=who)) == []
