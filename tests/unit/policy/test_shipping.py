"""A checkpoint that all ranks have copied needs none of them any more."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from tests.unit.controller.simulated_job import SimulatedJob

from holdfast_sidecar.checkpoint.writer.client import StorageUnanswered
from holdfast_sidecar.config.settings import CheckpointSettings
from holdfast_sidecar.controller.checkpointing import SLOW_S
from holdfast_sidecar.policy import checkpoint_order
from holdfast_sidecar.policy.checkpoint_order import Complete, SavePending, SaveVoid
from holdfast_sidecar.records.checkpoint import CheckpointOrder, FileFact, SavedPart, SnapshotReport
from holdfast_sidecar.records.plan import Member, Plan
from holdfast_sidecar.records.reports import NodeReport, RankReport

FILES = {"f": FileFact(1, "aa")}
PLAN = Plan(0, 1, "running", [Member("a", "i", 0, 0, 2), Member("b", "i", 1, 2, 1)], 3)
ORDER = CheckpointOrder(
    "c",
    0,
    1,
    20,
    "/c",
    "writing",
    0.0,
    write_timeout_s=50,
    mode="snapshot",
    writers={"0": "a", "1": "a", "2": "b"},
)


def node(name: str, saved: SavedPart | None = None, **snapshot: Any) -> NodeReport:
    report = SnapshotReport(**snapshot) if snapshot else None
    return NodeReport(name, "i", 1, 0, 1, 0, True, saved=saved, snapshot=report)


def written(name: str, **fields: Any) -> NodeReport:
    return node(name, SavedPart("c", files=FILES) if not fields else SavedPart("c", **fields))


def judged(
    *nodes: NodeReport,
    lost: tuple[str, ...] = (),
    ranks: dict[int, RankReport] | None = None,
    after_s: float = 1.0,
) -> Complete | SaveVoid | SavePending:
    by_name = {each.node: each for each in nodes}
    return checkpoint_order.judge_writing(ORDER, by_name, lost, ranks or {}, after_s)


def test_it_is_complete_once_every_writer_has_written() -> None:
    assert isinstance(judged(written("a"), written("b")), Complete)
    assert isinstance(judged(written("a"), node("b")), SavePending)
    assert isinstance(judged(written("a")), SavePending)


def test_a_writer_that_fails_is_lost_or_too_slow_voids_it() -> None:
    assert judged(written("a"), written("b", error="disk full")) == SaveVoid("disk full")
    assert judged(written("a"), node("b"), lost=("b",)) == SaveVoid(
        "node b was lost while it wrote"
    )
    assert judged(written("a"), node("b"), after_s=51) == SaveVoid(
        "1 of 2 nodes wrote, and no other made progress for 50 s"
    )


def test_a_node_that_is_lost_after_it_wrote_is_missed_by_nobody() -> None:
    assert isinstance(judged(written("a"), written("b"), lost=("b",)), Complete)
    assert isinstance(judged(written("a"), node("b"), lost=("a",)), SavePending)


def test_numbers_that_went_wrong_by_its_step_void_it_and_later_ones_do_not() -> None:
    def ranks(onset: int) -> dict[int, RankReport]:
        return {0: RankReport(0, 0, 1, 30, "forward", 0.0, 0.1, 0.1, onset_step=onset)}

    assert isinstance(judged(written("a"), written("b"), ranks=ranks(20)), SaveVoid)
    assert isinstance(judged(written("a"), written("b"), ranks=ranks(21)), Complete)


def test_the_newest_step_that_lies_on_living_nodes_is_shipped_from_own_slots_first() -> None:
    nodes = {
        "a": node("a", held={"0": [9, 8], "1": [8]}),
        "b": node("b", held={"2": [9, 8]}, copies={"0": [8], "1": [9, 8]}),
    }
    found = checkpoint_order.newest_shipment(PLAN, nodes, lambda name: True)
    assert found == checkpoint_order.Shipment(9, {"0": "a", "1": "b", "2": "b"})
    assert checkpoint_order.newest_shipment(PLAN, nodes, lambda name: name == "a") is None
    assert checkpoint_order.newest_shipment(
        PLAN, nodes, lambda name: True, 9
    ) == checkpoint_order.Shipment(8, {"0": "a", "1": "a", "2": "b"})
    assert checkpoint_order.newest_shipment(PLAN, nodes, lambda name: True, 8) is None
    nodes["a"] = node("a", held={"0": [8], "1": [8]})
    found = checkpoint_order.newest_shipment(PLAN, nodes, lambda name: True)
    assert found == checkpoint_order.Shipment(8, {"0": "a", "1": "a", "2": "b"})


def test_slots_on_every_node_make_a_checkpoint_by_snapshot() -> None:
    def mode(**second: Any) -> str:
        nodes = {"a": node("a", attempt=0, slots=1), "b": node("b", **second)}
        return checkpoint_order.mode_for(PLAN, nodes)

    assert mode(attempt=0, slots=2) == "snapshot"
    assert mode(attempt=0, slots=0) == "direct"
    assert mode(attempt=1, slots=2) == "direct", "of another attempt"
    assert mode() == "direct"


def test_slots_that_are_being_made_are_worth_a_moment() -> None:
    def told(**second: Any) -> str:
        nodes = {"a": node("a", wants=True, slots=2), "b": node("b", **second)}
        return checkpoint_order.awaited_slots(PLAN, nodes)

    assert told(wants=True) == "the slots of node b are being made"
    assert told(wants=True, slots=2) == ""
    assert told(wants=True, obstacle="memory") == ""
    assert told(taken=1) == ""


def test_the_manifest_gets_the_ranks_that_copied_not_those_of_the_next_attempt() -> None:
    assert checkpoint_order.plan_of(ORDER, PLAN) is PLAN
    later = Plan(1, 1, "running", [Member("a", "i", 0, 0, 2)], 2)
    plan = checkpoint_order.plan_of(ORDER, later)
    assert (plan.attempt, plan.world_size) == (0, 3)
    assert [(m.node, m.first_rank, m.slots) for m in plan.members] == [("a", 0, 2), ("b", 2, 1)]


def writing(job: SimulatedJob) -> bool:
    return (order := job.checkpoint) is not None and order.state == "writing"


def attempt(job: SimulatedJob) -> int:
    return -1 if job.plan is None or job.plan.state != "running" else job.plan.attempt


def slow_writers(job: SimulatedJob, writes: bool = False) -> None:
    for each in job.nodes.values():
        each.writes = writes


def test_ranks_copy_nodes_write_and_the_leader_seals(tmp_path: Path) -> None:
    job = SimulatedJob(tmp_path, registered=True, every_steps=20, snapshots=True)
    job.run_until(lambda: bool(job.storage.held), 60)
    assert job.checkpoint is not None
    assert job.checkpoint.mode == "snapshot"
    assert job.incidents() == []


def test_a_rank_that_dies_while_it_is_written_costs_nothing(tmp_path: Path) -> None:
    job = SimulatedJob(tmp_path, registered=True, every_steps=20, snapshots=True)
    slow_writers(job)
    job.run_until(lambda: writing(job), 60)
    order = job.checkpoint
    job.nodes["n0"].crash(0, -9, job.now)
    job.run_until(lambda: attempt(job) == 1)
    assert writing(job)
    slow_writers(job, writes=True)
    job.run_until(lambda: bool(job.storage.held))
    assert order is not None
    (entry,) = job.storage.held.values()
    assert (entry.identifier, entry.attempt, entry.step) == (order.identifier, 0, order.step)


def test_a_rank_that_dies_the_moment_all_have_copied_costs_nothing_either(tmp_path: Path) -> None:
    job = SimulatedJob(tmp_path, registered=True, every_steps=20, snapshots=True)
    slow_writers(job)

    def all_copied() -> bool:
        states = [n.saved.states if n.saved else {} for n in job.nodes.values()]
        return all(set(s.values()) == {"copied"} for s in states) and not writing(job)

    job.run_until(all_copied, 60)
    order = job.checkpoint
    job.nodes["n0"].crash(0, -9, job.now)
    slow_writers(job, writes=True)
    job.run_until(lambda: attempt(job) == 1)
    job.run_until(lambda: bool(job.storage.held))
    assert order is not None
    assert order.identifier in job.storage.held


def test_bad_numbers_take_it_back(tmp_path: Path) -> None:
    job = SimulatedJob(tmp_path, registered=True, every_steps=20, snapshots=True)
    slow_writers(job)
    job.run_until(lambda: writing(job), 60)
    order = job.checkpoint
    assert order is not None
    for each in job.nodes.values():
        each.onset = order.step
    slow_writers(job, writes=True)
    job.run_until(lambda: job.checkpoint is not None and job.checkpoint.state == "void")
    assert "not finite" in job.checkpoint.reason  # type: ignore[union-attr]


def test_a_new_leader_goes_on_with_what_is_being_written(tmp_path: Path) -> None:
    job = SimulatedJob(tmp_path, registered=True, every_steps=20, nodes=3, snapshots=True)
    slow_writers(job)
    job.run_until(lambda: writing(job), 60)
    before = job.checkpoint
    leader = next(n for n in job.nodes.values() if n.coordinator.orders().is_leader)
    lease = leader.coordinator.orders().lease
    leader.store.resign(lease.candidate)
    others = [n for n in job.nodes.values() if n is not leader]
    job.run_until(lambda: any(n.coordinator.orders().is_leader for n in others), 30)
    slow_writers(job, writes=True)
    job.run_until(lambda: bool(job.storage.held))
    assert before is not None
    assert list(job.storage.held) == [before.identifier]


def test_a_write_that_fails_is_void_and_the_next_one_works(tmp_path: Path) -> None:
    job = SimulatedJob(tmp_path, registered=True, every_steps=20, snapshots=True)
    job.nodes["n1"].breaks = "No space left on device"
    job.run_until(lambda: job.checkpoint is not None and job.checkpoint.state == "void", 60)
    assert job.checkpoint is not None
    assert job.checkpoint.reason == "No space left on device"
    job.nodes["n1"].breaks = ""
    job.run_until(lambda: bool(job.storage.held), 60)


def test_a_slow_write_skips_the_next_checkpoint_and_says_so(tmp_path: Path) -> None:
    job = SimulatedJob(tmp_path, registered=True, every_steps=20, snapshots=True)
    slow_writers(job)
    job.run_until(lambda: writing(job), 60)
    order = job.checkpoint
    assert order is not None
    job.run(6)
    assert job.checkpoint == order
    told = [n.coordinator.orders().skipped for n in job.nodes.values()]
    assert told == ["", ""], "the writer gives way to the ranks: that is no slow storage yet"
    job.run(SLOW_S)
    assert job.checkpoint == order
    told = [n.coordinator.orders().skipped for n in job.nodes.values()]
    assert sorted(told) == ["", order.identifier]
    slow_writers(job, writes=True)
    job.run_until(lambda: bool(job.storage.held))
    job.run(0.5)
    assert all(not n.coordinator.orders().skipped for n in job.nodes.values())


def test_a_write_that_makes_progress_is_never_given_up_and_one_that_makes_none_is(
    tmp_path: Path,
) -> None:
    limits = CheckpointSettings(dir="/c", every_steps=20, write_timeout_s=5)
    job = SimulatedJob(tmp_path, registered=True, checkpoint=limits, snapshots=True)
    for each in job.nodes.values():
        each.writes, each.trickles = False, True
    job.run_until(lambda: writing(job), 60)
    order = job.checkpoint
    job.run(30)
    assert job.checkpoint == order
    job.nodes["n0"].trickles = False
    job.run(10)
    assert job.checkpoint == order, "the other one still gets on with it"
    job.nodes["n1"].trickles = False
    job.run_until(lambda: not writing(job), 10)
    assert job.checkpoint is not None
    assert job.checkpoint.reason == "0 of 2 nodes wrote, and no other made progress for 5 s"


def test_hashing_what_ranks_wrote_themselves_is_given_up_for_want_of_progress_alone(
    tmp_path: Path,
) -> None:
    limits = CheckpointSettings(dir="/c", every_steps=20, deadline_s=5, write_timeout_s=5)
    job = SimulatedJob(tmp_path, registered=True, checkpoint=limits)
    for each in job.nodes.values():
        each.writes, each.trickles = False, True
    job.run_until(lambda: any(each.saved is not None for each in job.nodes.values()), 60)
    order = job.checkpoint
    assert order is not None
    assert order.mode == "direct"
    job.run(40)
    assert job.checkpoint == order
    for each in job.nodes.values():
        each.trickles = False
    job.run_until(lambda: job.checkpoint is not None and job.checkpoint.state == "void", 30)


def test_before_another_number_of_ranks_the_newest_snapshot_is_written_down(tmp_path: Path) -> None:
    job = SimulatedJob(tmp_path, nodes=3, least=2, registered=True, snapshots=True)
    job.run(5)
    leaver = job.nodes["n2"]
    job.nodes["n0"].copies = dict(leaver.held)
    leaver.dead = True
    reached = int(leaver.step)
    job.run_until(lambda: attempt(job) == 1, 60)
    assert job.plan is not None
    assert job.plan.world_size == 4
    (entry,) = job.storage.held.values()
    assert (entry.step, entry.world_size) == (reached, 6)
    assert [c.identifier for c in job.plan.resume if c.tier == "durable"] == [entry.identifier]


def test_a_rescue_takes_nothing_that_the_job_went_back_behind(tmp_path: Path) -> None:
    job = SimulatedJob(tmp_path, nodes=3, least=2, registered=True, snapshots=True, every_steps=20)
    job.run_until(lambda: bool(job.storage.held), 60)
    for node in job.nodes.values():
        node.onset = int(node.step)
    job.nodes["n0"].crash(0, 1, job.now)
    job.run_until(lambda: attempt(job) == 1, 60)
    assert job.plan is not None
    assert [c.tier for c in job.plan.resume] == ["durable"]
    stale = int(job.nodes["n0"].step) + 9
    for node in job.nodes.values():
        node.held = {rank: [stale] for rank in node.rank_names}
    job.nodes["n0"].copies = dict(job.nodes["n2"].held)
    job.nodes["n2"].dead = True
    slow_writers(job)
    job.run_until(lambda: writing(job), 60)
    assert job.checkpoint is not None
    assert (job.checkpoint.trigger, job.checkpoint.since) == ("failure", 1)


def test_a_rescue_that_does_not_move_is_not_waited_for(tmp_path: Path) -> None:
    job = SimulatedJob(tmp_path, nodes=3, least=2, registered=True, snapshots=True)
    job.run(5)
    slow_writers(job)
    job.nodes["n0"].copies = dict(job.nodes["n2"].held)
    job.nodes["n2"].dead = True
    job.run_until(lambda: writing(job), 60)
    job.run_until(lambda: attempt(job) == 1, 90)
    assert job.storage.held == {}


def test_the_newest_snapshot_is_written_down_before_a_job_fails_for_good(tmp_path: Path) -> None:
    job = SimulatedJob(tmp_path, registered=True, snapshots=True)
    for _ in range(2):
        job.run_until(lambda: all(n.state == "running" for n in job.nodes.values()))
        job.run(2)
        for each in job.nodes.values():
            each.step = 30.0
            each.held = {rank: [30] for rank in each.rank_names}
        job.nodes["n0"].crash(0, 1, job.now, "ValueError: own bug")
        job.run(2)
    job.run_until(lambda: job.plan is not None and job.plan.state == "stopped", 60)
    assert [entry.step for entry in job.storage.held.values()] == [30]


def test_storage_that_answers_late_is_asked_again_and_the_lease_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = SimulatedJob(tmp_path, registered=True, every_steps=20, snapshots=True)
    answers = job.now + 20.0
    whole = job.storage.finish

    def late(*given: Any) -> Any:
        if job.now < answers:
            raise StorageUnanswered
        return whole(*given)

    monkeypatch.setattr(job.storage, "finish", late)
    epochs: set[int] = set()

    def sealed() -> bool:
        epochs.update(n.coordinator.orders().lease.epoch for n in job.nodes.values())
        return bool(job.storage.held)

    job.run_until(sealed, 60)
    assert len(epochs - {0}) == 1
    assert job.incidents() == []


def test_a_manifest_that_may_or_may_not_be_there_is_settled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = SimulatedJob(tmp_path, registered=True, every_steps=20, snapshots=True)
    whole = job.storage.finish

    def sealed_and_then_lost(*given: Any) -> Any:
        whole(*given)
        raise OSError("the writer process was ended by SIGKILL")

    monkeypatch.setattr(job.storage, "finish", sealed_and_then_lost)
    job.run_until(lambda: (o := job.checkpoint) is not None and o.state == "complete", 60)
    monkeypatch.setattr(job.storage, "settle", lambda order: None)
    monkeypatch.setattr(
        job.storage, "finish", lambda *given: (_ for _ in ()).throw(OSError("Read-only"))
    )
    job.run_until(lambda: (o := job.checkpoint) is not None and o.state == "void", 60)
    assert job.checkpoint is not None
    assert "Read-only" in dataclasses.replace(job.checkpoint).reason
