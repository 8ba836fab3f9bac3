"""The leader's hands where the checkpoint storage is away, or holds what is no use any more."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.unit.controller.simulated_job import SimulatedJob

from holdfast_sidecar.checkpoint.ledger import NothingResumable
from holdfast_sidecar.checkpoint.writer.client import StorageUnanswered
from holdfast_sidecar.config.settings import RedisSettings
from holdfast_sidecar.policy import checkpoint_order
from holdfast_sidecar.policy.outcome import DecisionContext
from holdfast_sidecar.records.checkpoint import CheckpointOrder, LedgerEntry, SavedPart
from holdfast_sidecar.records.plan import Candidate, Plan
from holdfast_sidecar.records.reports import RankReport
from holdfast_sidecar.store.memory_store import MemoryStore


def is_running(job: SimulatedJob, attempt: int) -> bool:
    return job.plan is not None and (job.plan.state, job.plan.attempt) == ("running", attempt)


def test_storage_that_is_away_delays_a_restart_and_nobody_starts_from_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = SimulatedJob(tmp_path, registered=True, every_steps=20)
    job.run_until(lambda: bool(job.storage.held), 60)

    def away(occasion: str) -> list[Candidate]:
        raise OSError("Stale file handle")

    with monkeypatch.context() as patch:
        patch.setattr(job.storage, "candidates", away)
        job.nodes["n0"].crash(0, -9, job.now)
        job.run(5)
        assert is_running(job, 0) is False
        assert any("Stale" in node.coordinator.waiting for node in job.nodes.values())
    job.run_until(lambda: is_running(job, 1))
    assert job.plan is not None
    assert job.plan.resume


def test_a_restart_from_snapshots_waits_for_no_storage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = SimulatedJob(tmp_path, registered=True, every_steps=20, snapshots=True)
    job.run_until(lambda: bool(job.storage.tidied), 60)
    job.run(0.3)

    def unanswered(occasion: str) -> list[Candidate]:
        raise StorageUnanswered

    monkeypatch.setattr(job.storage, "candidates", unanswered)
    job.nodes["n0"].crash(0, -9, job.now)
    job.run_until(lambda: is_running(job, 1))
    assert job.plan is not None
    assert [c.tier for c in job.plan.resume][:2] == ["snapshot", "durable"]
    assert {c.identifier for c in job.plan.resume[1:]} == set(job.storage.held)


def test_an_order_that_nobody_wrote_for_yet_is_given_up_without_asking_storage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = SimulatedJob(tmp_path, registered=True, every_steps=20, snapshots=True)
    job.run_until(lambda: bool(job.storage.tidied), 60)
    job.run_until(lambda: job.checkpoint is not None and job.checkpoint.state == "armed", 60)

    def unanswered(order: CheckpointOrder) -> LedgerEntry | None:
        raise StorageUnanswered

    monkeypatch.setattr(job.storage, "settle", unanswered)
    job.nodes["n0"].crash(0, -9, job.now)
    job.run_until(lambda: is_running(job, 1))


def test_storage_is_looked_through_only_after_a_change_and_left_alone_while_it_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = SimulatedJob(tmp_path, registered=True, every_steps=20, snapshots=True)
    job.run_until(lambda: bool(job.storage.tidied), 60)
    job.run(0.5)
    looks: list[str] = []
    candidates = job.storage.candidates

    def look(occasion: str) -> list[Candidate]:
        looks.append(occasion)
        if len(looks) == 1:
            raise OSError("Stale file handle")
        found: list[Candidate] = candidates(occasion)
        return found

    monkeypatch.setattr(job.storage, "candidates", look)
    job.run(1)
    assert looks == []
    job.run_until(lambda: len(looks) == 1, 60)
    job.run(0.3)
    assert len(looks) == 1


def test_checkpoints_that_are_all_of_no_use_stop_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = SimulatedJob(tmp_path)

    def none_of_use(occasion: str) -> list[Candidate]:
        raise NothingResumable("move them away")

    job.run(3)
    monkeypatch.setattr(job.storage, "candidates", none_of_use)
    job.nodes["n0"].crash(0, -9, job.now)
    job.run_until(lambda: job.plan is not None and job.plan.state == "stopped")
    assert job.plan is not None
    assert (job.plan.exit_code, job.plan.message) == (1, "move them away")
    assert job.incidents()[0].decided == "stop"
    job.run(1)
    assert {node.exit_code for node in job.nodes.values()} == {1}


def test_a_first_attempt_does_not_begin_beside_checkpoints_of_no_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = SimulatedJob(tmp_path)

    def none_of_use(occasion: str) -> list[Candidate]:
        raise NothingResumable("move them away")

    monkeypatch.setattr(job.storage, "candidates", none_of_use)
    job.run_until(lambda: all(node.exit_code == 1 for node in job.nodes.values()))
    assert all(node.attempts_run == [] for node in job.nodes.values())


def test_a_leader_deposed_while_it_seals_removes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = SimulatedJob(tmp_path, registered=True, every_steps=20)
    finish = job.storage.finish

    def slow(order: CheckpointOrder, plan: Plan, parts: Sequence[SavedPart]) -> LedgerEntry:
        entry: LedgerEntry = finish(order, plan, parts)
        job.now += 5  # longer than a lease
        MemoryStore(job.server).campaign("another", 60.0, 0)
        return entry

    job.run(1)
    monkeypatch.setattr(job.storage, "finish", slow)
    job.run_until(lambda: bool(job.storage.held), 60)
    assert job.storage.tidied == []


def test_a_leader_tidies_up_after_a_checkpoint_and_bears_it_when_it_can_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = SimulatedJob(tmp_path, registered=True, every_steps=20)
    job.run_until(lambda: bool(job.storage.tidied), 60)
    assert job.storage.tidied == list(job.storage.held)

    def fails(entry: LedgerEntry, plan: Plan) -> None:
        raise OSError("Input/output error")

    monkeypatch.setattr(job.storage, "tidy", fails)
    job.run_until(lambda: len(job.storage.held) > 2, 60)


def test_what_is_under_way_when_an_attempt_ends_is_settled_before_the_next_one_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = SimulatedJob(tmp_path, registered=True, every_steps=100)
    asked: list[str] = []

    def settle(order: CheckpointOrder) -> None:
        assert not is_running(job, 1)
        asked.append(order.identifier)

    monkeypatch.setattr(job.storage, "settle", settle)
    job.run_until(lambda: (o := job.checkpoint) is not None and o.state == "armed", 60)
    order = job.checkpoint
    job.nodes["n0"].crash(0, -9, job.now)
    job.run_until(lambda: is_running(job, 1))
    assert order is not None
    assert asked == [order.identifier]
    assert job.checkpoint == dataclasses.replace(order, state="void", reason="the attempt ended")


def test_a_verdict_that_can_not_be_written_stops_no_leader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = SimulatedJob(tmp_path, registered=True, every_steps=20)
    job.run_until(lambda: bool(job.storage.held), 60)

    def read_only(identifier: str, attempt: int) -> None:
        raise OSError("Read-only file system")

    monkeypatch.setattr(job.storage, "failed_to_load", read_only)
    job.nodes["n0"].crash(0, -9, job.now)
    job.run_until(lambda: is_running(job, 1))
    for node in job.nodes.values():
        node.resume_failures = 1
    job.run(2)
    assert is_running(job, 1)


def entry(attempt: int, step: int) -> LedgerEntry:
    return LedgerEntry("c", "/c", step, attempt, 1, "", "complete", 1, 2, 0.0)


def test_what_an_abandoned_branch_saved_further_on_holds_up_no_checkpoint() -> None:
    ranks = {0: RankReport(0, 0, 1, 520, "forward", 0.0, 0.1, 0.1, resumed_step=500)}
    plan = Plan(1, 1, "running", world_size=1)
    ledger = [entry(0, 500), entry(0, 1000)]
    assert checkpoint_order.last_step(ledger, plan, ranks) == 500
    assert checkpoint_order.last_step([*ledger, entry(1, 510)], plan, ranks) == 510
    # Attempts may count anew: an earlier life's one is no better for having this one's number.
    left = dataclasses.replace(entry(1, 900), verdict="poisoned")
    assert checkpoint_order.last_step([*ledger, left], plan, ranks) == 500


def test_until_ranks_have_resumed_they_have_what_they_are_to_resume_from() -> None:
    """Or an older snapshot, written down meanwhile, would count as newer than it."""
    plan = Plan(1, 1, "running", world_size=1, resume=[Candidate("c", "/c", 500)])
    ranks = {0: RankReport(0, 0, 1, 0, "restoring", 0.0, 0.0, 0.0)}
    ledger = [entry(0, 400), entry(0, 500), entry(0, 1000)]
    assert checkpoint_order.last_step(ledger, plan, ranks) == 500
    assert checkpoint_order.last_step(ledger, plan, {}) == 500


@pytest.mark.parametrize(
    ("url", "is_asked"),
    [
        ("redis+sentinel://a,b/s", True),
        ("rediss+sentinel://a,b/s", True),
        ("redis://a", False),
        ("", False),
    ],
)
def test_behind_any_sentinel_a_majority_is_asked_for(
    url: str, is_asked: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = SimulatedJob(tmp_path)
    object.__setattr__(job.settings, "redis", RedisSettings(url=url))
    asked: list[bool] = []
    original = DecisionContext.__init__

    def noting(self: DecisionContext, *given: object, **named: object) -> None:
        original(self, *given, **named)  # type: ignore[arg-type]
        asked.append(self.majority)

    monkeypatch.setattr(DecisionContext, "__init__", noting)
    job.run(0.5)
    assert set(asked) == {is_asked}
