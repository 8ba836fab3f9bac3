"""A state directory that takes nothing: whoever leads leads on, and a job ends as it would."""

from __future__ import annotations

from pathlib import Path

from tests.unit.controller.simulated_job import SimulatedJob

from holdfast_sidecar.controller.fence import Fence, FenceFile
from holdfast_sidecar.store.memory_store import MemoryStore


def fill_up(folder: Path) -> None:
    """Nothing can be made below it any more, by whomever: root heeds no permissions."""
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    folder.write_text("")


def test_a_job_whose_nodes_can_write_nothing_is_restarted_and_led_to_its_end(
    tmp_path: Path,
) -> None:
    job = SimulatedJob(tmp_path, nodes=2)
    job.run_until(lambda: job.is_running(0))
    for name in job.nodes:
        fill_up(tmp_path / name)
    job.nodes["n1"].crash(0, -11, job.now)
    job.run_until(lambda: job.is_running(1))
    job.run(5)
    assert MemoryStore(job.server).read().lease.candidate
    assert all(node.coordinator.orders().unwritten for node in job.nodes.values())
    for node in job.nodes.values():
        node.until = job.until = int(node.step) + 5
        node.state = "succeeded"
    job.run_until(lambda: job.plan is not None and job.plan.state == "done")


def test_a_fence_that_can_not_be_written_is_obeyed_all_the_same(tmp_path: Path) -> None:
    fence = FenceFile(tmp_path / "file" / "fence.json")
    (tmp_path / "file").write_text("")
    assert fence.obey(3, 7)
    assert fence.fence == Fence(3, 7)
    assert not fence.obey(2, 7)
    assert "can't be written" in fence.obstacle
    (tmp_path / "file").unlink()
    assert fence.obey(4, 7)
    assert not fence.obstacle
    assert FenceFile(tmp_path / "file" / "fence.json").fence == Fence(4, 7)


def test_what_is_in_shared_memory_counts_where_the_disk_knows_less(tmp_path: Path) -> None:
    disk, local = tmp_path / "disk.json", tmp_path / "fence.json"
    local.write_text('{"attempt": 3, "epoch": 7}')
    disk.write_text('{"attempt": 2, "epoch": 9}')
    assert FenceFile(disk, local).fence == Fence(3, 9)
