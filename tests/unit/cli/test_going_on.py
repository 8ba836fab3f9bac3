"""What a restart is said to go on from, beside what the real leader then opens it with."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.controller.simulated_job import SimulatedJob

from holdfast_sidecar.cli.job import without_saving
from holdfast_sidecar.config.settings import CheckpointSettings
from holdfast_sidecar.records.plan import Candidate
from holdfast_sidecar.store.memory_store import MemoryStore


def running(tmp_path: Path, listens: bool = True, **options: object) -> SimulatedJob:
    given: dict[str, object] = {"snapshots": True, "checkpoint": CheckpointSettings()}
    job = SimulatedJob(tmp_path, **{**given, **options})  # type: ignore[arg-type]
    for node in job.nodes.values():
        node.peer_address = "127.0.0.1:1" if listens else ""
    job.run_until(lambda: job.is_running(0))
    job.run(3)
    return job


def foretold(job: SimulatedJob, node: str = "") -> str:
    return without_saving(MemoryStore(job.server).read(), node)


def resumed(job: SimulatedJob) -> Candidate | None:
    job.run_until(lambda: job.is_running(1))
    assert job.plan is not None
    return job.plan.resume[0] if job.plan.resume else None


@pytest.mark.parametrize("node", ["", "n1"], ids=["in place", "without n1"])
@pytest.mark.parametrize("kind", ["restart", "drain"])
def test_memory_is_what_a_restart_goes_on_from_as_foretold(
    tmp_path: Path, kind: str, node: str
) -> None:
    """A node that was taken out lives, and its sidecar gives away what its ranks left in memory."""
    job = running(tmp_path, nodes=2, spares=1)
    assert foretold(job, node).startswith("from the newest snapshot (step ")
    if kind == "drain" and node:
        job.ask("d", "drain", node=node, for_s=100.0)
        job.run(1)
        job.ask("r", "restart")
    else:
        job.ask("r", "restart", node=node)
    found = resumed(job)
    assert found is not None
    assert found.tier == "snapshot"
    assert found.step >= 25
    members = job.plan.members if job.plan is not None else []
    assert node not in [member.node for member in members]


def test_a_node_that_was_drained_before_is_not_counted_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = running(tmp_path, nodes=2, least=1)
    monkeypatch.setattr(job.storage, "path", lambda step, identifier: "")
    job.ask("d", "drain", node="n1", for_s=100.0)
    job.run(1)
    assert foretold(job) == "from nothing", "one node has not the ranks of two"
    job.ask("r", "restart")
    assert resumed(job) is None


def test_nodes_whose_reports_are_a_step_apart_have_the_same_once_they_stopped(
    tmp_path: Path,
) -> None:
    job = running(tmp_path, nodes=2, spares=1)
    job.nodes["n0"].held = {rank: [7] for rank in job.nodes["n0"].rank_names}
    job.nodes["n0"].report(job.now)
    job.attend(job.nodes["n0"])
    assert foretold(job, "n1") == "from the newest snapshot"


def test_where_no_node_gives_anything_away_what_leaves_with_a_node_is_lost(tmp_path: Path) -> None:
    job = running(tmp_path, nodes=2, spares=1, listens=False)
    assert foretold(job, "n1") == "from nothing"
    assert foretold(job).startswith("from the newest snapshot")


def test_without_a_node_to_take_its_place_there_is_nothing_to_go_on_from(tmp_path: Path) -> None:
    job = running(tmp_path, nodes=2)
    assert foretold(job, "n1") == "from nothing"


def test_a_snapshot_behind_which_nothing_is_left_says_so(tmp_path: Path) -> None:
    """All checkpoints are from after numbers went wrong: where the snapshot turns out not to be
    whole on all ranks, these must not start from nothing."""
    checkpoint = CheckpointSettings(dir="/c", every_steps=20)
    job = running(tmp_path, nodes=2, registered=True, checkpoint=checkpoint)
    job.run_until(lambda: bool(job.storage.held), 60.0)
    saved = min(entry.step for entry in job.storage.held.values())
    for node in job.nodes.values():
        node.held = {rank: [saved - 1] for rank in node.rank_names}
        node.onset = saved
        node.report(job.now)
        job.attend(node)
    job.nodes["n1"].crash(0, -9, job.now)
    found = resumed(job)
    assert found is not None
    assert (found.tier, found.below, found.is_last) == ("snapshot", saved, True)
    assert job.plan is not None
    assert len(job.plan.resume) == 1
