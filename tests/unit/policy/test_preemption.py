"""What the leader does when a scheduler wants nodes back, in simulated time."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from tests.unit.controller.simulated_job import SimulatedJob, SimulatedNode
from tests.unit.controller.test_leader import running, started

from holdfast_sidecar.config.settings import CheckpointSettings, PolicySettings
from holdfast_sidecar.policy.preemption import LAST_S, patience_s
from holdfast_sidecar.records.checkpoint import SnapshotReport
from holdfast_sidecar.store.orders import LocalState

REQUEUE = 75


def stopped(job: SimulatedJob) -> bool:
    return job.plan is not None and job.plan.state == "stopped"


def codes(job: SimulatedJob) -> list[int | None]:
    return [node.exit_code for node in job.nodes.values()]


def test_a_job_that_is_asked_to_go_is_saved_first_and_may_be_requeued(tmp_path: Path) -> None:
    job = started(tmp_path, registered=True)
    asked_at, step = job.now, job.nodes["n0"].step
    for node in job.nodes.values():
        node.preempt(job.now)
    job.run_until(lambda: stopped(job))
    assert job.plan is not None
    assert job.now - asked_at < 3, "nothing is waited for once it is saved"
    (saved,) = job.storage.held.values()
    assert saved.step > step
    assert job.plan.message == (
        f"preempted (SIGTERM on n0, n1): the checkpoint of step {saved.step} is complete"
    )
    order = job.checkpoint
    assert order is not None
    assert (order.trigger, order.requested_by) == ("preempt", "preempt")
    job.run(1)
    assert codes(job) == [REQUEUE, REQUEUE]
    (incident,) = job.incidents()
    assert (incident.cause, incident.decided) == ("preempted", "stop")


def test_without_the_one_node_that_is_asked_for_the_job_goes_on(tmp_path: Path) -> None:
    job = started(tmp_path, nodes=3, least=2, registered=True)
    job.nodes["n2"].preempt(job.now)
    job.run_until(lambda: running(job, 1))
    assert job.plan is not None
    assert [m.node for m in job.plan.members] == ["n0", "n1"]
    (saved,) = job.storage.held.values()
    assert job.plan.resume[0].identifier == saved.identifier
    assert codes(job) == [None, None, REQUEUE]
    assert job.plan.restarts == 0, "nobody's fault: it uses up no budget"
    (incident,) = job.incidents()
    assert (incident.cause, incident.culprit_node, incident.decided) == (
        "preempted",
        "n2",
        "restart",
    )


def test_a_spare_takes_the_place_of_a_node_that_is_asked_for(tmp_path: Path) -> None:
    job = started(tmp_path, nodes=2, spares=1, registered=True)
    job.nodes["n0"].preempt(job.now)
    job.run_until(lambda: running(job, 1))
    assert job.plan is not None
    assert {m.node for m in job.plan.members} == {"n1", "n2"}


def test_below_the_minimum_the_job_stops_rather_than_waits(tmp_path: Path) -> None:
    job = started(tmp_path, registered=True)
    job.nodes["n1"].preempt(job.now)
    job.run_until(lambda: stopped(job))
    job.run(1)
    assert codes(job) == [REQUEUE, REQUEUE]
    assert len(job.storage.held) == 1


def test_nodes_that_hear_of_it_one_after_the_other_are_one_preemption(tmp_path: Path) -> None:
    job = started(tmp_path, nodes=2, least=1, registered=True)
    job.nodes["n0"].preempt(job.now)
    job.run(0.8)
    job.nodes["n1"].preempt(job.now)
    job.run_until(lambda: stopped(job))
    assert len(job.incidents()) == 1
    assert len(job.storage.held) == 1


def test_a_checkpoint_that_came_too_late_is_tried_again(tmp_path: Path) -> None:
    job = started(tmp_path, registered=True)
    job.misses = 2
    for node in job.nodes.values():
        node.preempt(job.now)
    job.run_until(lambda: stopped(job))
    assert len(job.storage.held) == 1


def test_a_scheduled_checkpoint_on_its_way_is_the_one(tmp_path: Path) -> None:
    job = started(tmp_path, registered=True, every_steps=10)
    job.run_until(lambda: job.checkpoint is not None and job.checkpoint.state == "armed")
    armed = job.checkpoint
    assert armed is not None
    for node in job.nodes.values():
        node.preempt(job.now)
    job.run_until(lambda: stopped(job))
    assert [entry.step for entry in job.storage.held.values()] == [armed.step]


def test_who_hangs_in_an_evaluation_is_given_up_in_time(tmp_path: Path) -> None:
    """Without snapshots there is nothing to save: the plan ends before the nodes are gone."""
    job = started(tmp_path, registered=True)
    asked_at = job.now
    for node in job.nodes.values():
        node.preempt(job.now)
        evaluate(node)
    job.run_until(lambda: stopped(job), seconds=40)
    assert 20 < job.now - asked_at < 25
    assert job.plan is not None
    assert "was not complete in time" in job.plan.message
    assert job.plan.exit_code == REQUEUE


def test_the_newest_snapshot_is_written_where_the_ranks_do_not_come_to_the_step(
    tmp_path: Path,
) -> None:
    job = started(tmp_path, registered=True)
    asked_at = job.now
    for node in job.nodes.values():
        hold_snapshots(node, [7, 6])
        node.preempt(job.now)
        evaluate(node)
    job.run_until(
        lambda: job.checkpoint is not None and job.checkpoint.state == "writing", seconds=20
    )
    order = job.checkpoint
    assert order is not None
    assert (order.step, order.mode, order.requested_by) == (7, "snapshot", "preempt")
    assert order.writers == {"0": "n0", "1": "n0", "2": "n1", "3": "n1"}
    assert 10 < job.now - asked_at < 15, "half of the time for the ranks, half for the writers"


def test_where_the_ranks_are_still_starting_again_what_they_left_is_written(tmp_path: Path) -> None:
    """They resume from memory, which goes with the nodes."""
    job = started(tmp_path, registered=True)
    job.nodes["n0"].crash(0, -9, job.now)
    job.run_until(lambda: running(job, 1))
    asked_at = job.now
    for node in job.nodes.values():
        hold_snapshots(node, [7, 6])
        node.registered = False
        node.preempt(job.now)
    job.run_until(lambda: stopped(job))
    assert job.now - asked_at < 3
    assert [(entry.step, entry.requested_by) for entry in job.storage.held.values()] == [
        (7, "preempt")
    ]
    job.run(1)
    assert codes(job) == [REQUEUE, REQUEUE]


def test_before_the_time_limit_the_job_is_saved_and_stopped(tmp_path: Path) -> None:
    job = SimulatedJob(tmp_path, registered=True, policy=PolicySettings(time_limit_margin_s=5.0))
    for node in job.nodes.values():
        node.ends_s = job.now + 12.0
    ends = job.now + 12.0
    job.run_until(lambda: running(job, 0))
    job.run_until(lambda: job.now > ends - 5.5)
    assert job.checkpoint is None, "the time is used"
    job.run_until(lambda: stopped(job))
    assert job.plan is not None
    assert job.now < ends - 2
    assert "time limit" in job.plan.message
    assert len(job.storage.held) == 1
    job.run(1)
    assert codes(job) == [REQUEUE, REQUEUE]


def test_a_job_that_can_not_be_saved_uses_its_time_to_the_end(tmp_path: Path) -> None:
    job = SimulatedJob(tmp_path, registered=False)
    for node in job.nodes.values():
        node.ends_s = job.now + 12.0
    job.run_until(lambda: running(job, 0))
    job.run(15)
    assert running(job, 0)


def test_under_torchrun_the_sidecar_says_that_the_ranks_were_told(tmp_path: Path) -> None:
    job = started(tmp_path, registered=True)
    for node in job.nodes.values():
        change_state(node, preempted_by="SIGTERM")
    job.run_until(lambda: stopped(job))
    assert len(job.storage.held) == 1


@pytest.mark.parametrize("mode", ["snapshot", "direct"])
def test_ranks_never_have_all_the_time_to_come_to_the_step(mode: str) -> None:
    assert 0 < patience_s(mode, 25.0, 30.0) <= 25.0 - LAST_S


@pytest.mark.parametrize("snapshots", [False, True], ids=["direct", "from snapshots"])
@pytest.mark.parametrize("ends_after_s", [23.0, 24.5, 26.0, 27.5])
def test_ranks_that_gather_for_long_are_asked_early_enough_before_the_time_limit(
    tmp_path: Path, snapshots: bool, ends_after_s: float
) -> None:
    """A window of 6 s, at whose end alone they can be saved, and 3 s for writing."""
    policy = PolicySettings(time_limit_margin_s=3.0)
    job = SimulatedJob(tmp_path, registered=True, policy=policy, snapshots=snapshots)
    ends_s = job.now + ends_after_s
    for node in job.nodes.values():
        node.gathers, node.ends_s = 60, ends_s
    job.run_until(lambda: stopped(job), seconds=40)
    (saved,) = job.storage.held.values()
    assert (saved.step % 60, saved.requested_by) == (0, "preempt")
    assert job.now < ends_s - LAST_S
    assert job.now > ends_s - 11, "and no earlier than needed"


@pytest.mark.parametrize("snapshots", [False, True], ids=["direct", "from snapshots"])
def test_ranks_whose_steps_are_long_are_asked_early_enough_before_the_time_limit(
    tmp_path: Path, snapshots: bool
) -> None:
    policy = PolicySettings(time_limit_margin_s=3.0)
    job = SimulatedJob(tmp_path, registered=True, policy=policy, snapshots=snapshots)
    job.ticks_per_step = 50
    ends_s = job.now + 40.0
    for node in job.nodes.values():
        node.told_step_s, node.ends_s = 5.0, ends_s
    job.run_until(lambda: stopped(job), seconds=45)
    (saved,) = job.storage.held.values()
    assert (saved.step, saved.requested_by) == (7, "preempt")
    assert job.now < ends_s - LAST_S


@pytest.mark.parametrize("snapshots", [False, True], ids=["direct", "from snapshots"])
def test_an_order_waits_for_the_end_of_a_long_window(tmp_path: Path, snapshots: bool) -> None:
    """Else a person would be told that nothing was saved, by a job that is well."""
    checkpoint = CheckpointSettings(dir="/c", deadline_s=1.0)
    job = started(tmp_path, registered=True, checkpoint=checkpoint, snapshots=snapshots)
    for node in job.nodes.values():
        node.gathers = 60
    job.run_until(lambda: job.nodes["n0"].step >= 62)
    job.ask("r1", "checkpoint")
    job.run_until(lambda: not job.requests())
    (saved,) = job.storage.held.values()
    assert (saved.step, saved.requested_by) == (120, "r1")


def test_by_steps_a_job_of_long_steps_is_saved_at_each_that_is_due(tmp_path: Path) -> None:
    job = SimulatedJob(tmp_path, registered=True, every_steps=4)
    job.ticks_per_step = 30
    for node in job.nodes.values():
        node.told_step_s = 3.0
    job.run(75)
    assert [entry.step for entry in job.storage.held.values()] == [16, 20, 24]


def evaluate(node: SimulatedNode) -> None:
    """From now on its ranks make no step, and nobody takes them for hung."""
    node.frozen = {0}
    change_state(node, findings=[])


def hold_snapshots(node: SimulatedNode, steps: list[int]) -> None:
    first = 2 * int(node.name[1:])
    held = {str(rank): steps for rank in (first, first + 1)}
    report = SnapshotReport(attempt=node.attempt, slots=2, wants=True, held=held, newest=steps[0])
    change_state(node, snapshot=report)


def change_state(node: SimulatedNode, **changes: object) -> None:
    """Let its sidecar say these things from now on."""
    before = node.local_state

    def changed(now: float) -> LocalState:
        return dataclasses.replace(before(now), **changes)  # type: ignore[arg-type]

    node.local_state = changed  # type: ignore[method-assign]
