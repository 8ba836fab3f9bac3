"""Whole runs with faults, changes of leader and a store that comes and goes: the account's sum is
the wall clock, nothing falls, and time is put down to what it was spent on."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.unit.policy.pretend_job import ToldJob, account_of

from holdfast_sidecar.config.settings import PolicySettings
from holdfast_sidecar.controller import accounting
from holdfast_sidecar.controller.accounting import GoodputKeeping
from holdfast_sidecar.performance.goodput.accounting import AccountInput, AccountState, next_turn
from holdfast_sidecar.policy.cluster import Cluster
from holdfast_sidecar.records.account import CLOSED, PENDING, Account, Category
from holdfast_sidecar.store.account import Turn
from holdfast_sidecar.store.memory_store import MemoryStore
from holdfast_sidecar.store.protocol import Lease, Section, StoreUnavailable

BEARING = PolicySettings(budget=1000, backoff_s=0.1, backoff_limit_s=0.1, blames_limit=1000)


def stepping(folder: Path, **given: object) -> ToldJob:
    """A job whose ranks are past their first steps."""
    job = ToldJob(folder, **{"policy": BEARING, "registered": True, "every_steps": 20, **given})
    job.run_until(lambda: job.is_running(0))
    job.run(5)
    assert job.seen is not None
    assert job.seen.open == PENDING
    return job


def test_steps_are_split_as_the_ranks_tell(tmp_path: Path) -> None:
    job = stepping(tmp_path)
    before = {category: job.seconds(category) for category in Category}
    job.run(20)
    spent = {c.value: job.seconds(c) - before[c] for c in Category if job.seconds(c) > before[c]}
    assert sum(spent.values()) == pytest.approx(20, abs=1.5)
    assert spent["data_wait"] / sum(spent.values()) == pytest.approx(0.2, abs=0.01)
    assert set(spent) == {"data_wait", "productive"}
    assert job.seen is not None
    assert job.seen.gpu_seconds(Category.PRODUCTIVE) == 4 * job.seconds(Category.PRODUCTIVE)


def test_a_crash_costs_its_restart_and_the_steps_since_the_last_checkpoint(tmp_path: Path) -> None:
    job = stepping(tmp_path, every_steps=60)
    job.run_until(lambda: bool(job.storage.held), 60)
    job.run(4)
    job.nodes["n0"].crash(0, -9, job.now)
    job.run_until(lambda: job.is_running(1), 60)
    job.run(3)
    (incident,) = job.incidents()
    assert job.seen is not None
    cost = job.seen.costs[incident.identifier]
    assert cost.lost_steps == incident.step_reached - incident.step_resumed > 0
    # A step takes 0.1 s, of which a fifth is no productive time; reports are a step or two old.
    assert cost.lost_us / 1e6 == pytest.approx(0.08 * cost.lost_steps, rel=0.1)
    assert cost.lost_gpu_us == 4 * cost.lost_us
    assert cost.down_us / 1e6 == pytest.approx(
        incident.recovered_unix_s - incident.since_unix_s, abs=0.3
    )
    assert (cost.cause, cost.node) == ("crash", "n0")


def test_a_restart_that_fails_before_its_first_step_loses_the_work_once(tmp_path: Path) -> None:
    job = stepping(tmp_path)
    job.run_until(lambda: bool(job.storage.held), 60)
    job.nodes["n0"].crash(0, -9, job.now)
    job.run_until(lambda: job.nodes["n0"].attempt == 1 and job.nodes["n0"].state == "running", 60)
    job.nodes["n0"].crash(0, -9, job.now)
    job.run_until(lambda: job.is_running(2), 60)
    job.run(3)
    assert job.seen is not None
    lost = [job.seen.costs[one.identifier].lost_us for one in job.incidents()]
    assert lost[0] > 0
    assert lost[1:] == [0]


@pytest.mark.parametrize("another_leads", [False, True])
def test_while_the_store_is_away_training_counts_as_training(
    tmp_path: Path, another_leads: bool
) -> None:
    job = stepping(tmp_path)
    before = job.seconds(Category.PRODUCTIVE)
    if another_leads:
        job.depose()
    job.server.pause()
    job.run(60)
    job.server.resume()
    job.run(5)
    assert job.seconds(Category.UNOBSERVED) == 0
    assert job.seconds(Category.PRODUCTIVE) - before == pytest.approx(0.8 * 65, abs=2)


def test_what_no_sidecar_was_awake_to_see_is_unobserved(tmp_path: Path) -> None:
    job = stepping(tmp_path)
    job.now += 60.0  # nobody ticks
    job.run(5)
    assert job.seconds(Category.UNOBSERVED) == pytest.approx(50, abs=1.1)


def test_a_leader_without_ranks_of_its_own_saw_nothing_of_training(tmp_path: Path) -> None:
    job = stepping(tmp_path, spares=1)
    spare = next(name for name, node in job.nodes.items() if node.state == "joining")
    while job.leader() != spare:
        job.depose()
        job.run(0.3)
    job.server.pause()
    job.run(60)
    job.server.resume()
    job.run_until(lambda: bool(job.leader()))
    first = job.leader()
    job.run(5)
    assert (job.seconds(Category.UNOBSERVED) > 0) == (first == spare)


@pytest.mark.parametrize("how", ["empty", "restart"])
def test_an_emptied_store_gets_the_account_back(tmp_path: Path, how: str) -> None:
    job = stepping(tmp_path)
    began_us = job.seen.began_us if job.seen else 0
    before = job.seconds(Category.PRODUCTIVE)
    getattr(job.server, how)()
    job.run(10)
    assert job.seen is not None
    assert job.seen.began_us == began_us
    assert job.seconds(Category.PRODUCTIVE) - before == pytest.approx(8, abs=1.5)
    assert job.seconds(Category.QUEUED) < 1


def test_a_clock_that_is_set_back_takes_nothing_away_whoever_leads_then(tmp_path: Path) -> None:
    """ToldJob looks whether anything falls."""
    job = stepping(tmp_path, nodes=3, slots=1)
    began_s, first = job.now, job.leader()
    before = job.seen.total_us if job.seen else 0
    job.server._clock = lambda: job.now - 30.0
    job.run(3)
    while job.leader() == first:
        job.depose()
        job.run(1)
    job.run(3)
    assert job.seen is not None
    assert (job.seen.total_us - before) / 1e6 == pytest.approx(job.now - began_s, abs=1.5)


@pytest.mark.parametrize("was_seen", [True, False])
def test_an_account_that_can_not_be_read_is_begun_anew_and_that_is_told_once(
    tmp_path: Path, was_seen: bool, caplog: pytest.LogCaptureFixture
) -> None:
    job = stepping(tmp_path)
    job.run(10)
    before = job.seconds(Category.PRODUCTIVE)
    held = job.server._jobs["job"].sections[Section.ACCOUNT]
    held.values["marks"] = "?"
    if not was_seen:
        for node in job.nodes.values():
            node.coordinator._leadership._goodput = GoodputKeeping(node.store)
        job.seen = None
    caplog.clear()
    job.run(5)
    now = account_of(job.server)
    assert now is not None
    assert (now.seconds(Category.PRODUCTIVE) > before) is was_seen
    told = [one.getMessage() for one in caplog.records if "can't be read" in one.getMessage()]
    words = "put back as it was seen last" if was_seen else "counted anew"
    assert len(told) == 1
    assert words in told[0]


def test_a_run_that_is_over_is_closed_and_the_next_one_begins_anew(tmp_path: Path) -> None:
    job = stepping(tmp_path)
    for node in job.nodes.values():
        job.until = int(node.step) + 10
    job.run_until(lambda: job.plan is not None and job.plan.state == "done", 60)
    job.run(1)
    assert job.seen is not None
    total_us = job.seen.total_us
    assert (job.seen.open, job.seen.pending_us) == (CLOSED, 0)
    job.run(20)
    assert job.seen.total_us == total_us
    job.nodes.clear()
    job.until = 10**9
    for name in ("n5", "n6"):
        job.add(name)
    job.run_until(lambda: job.is_running(1), 60)
    job.run(2)
    again = account_of(job.server)
    assert again is not None
    assert again.began_us > total_us
    assert again.total_us < 10e6


def test_the_store_is_asked_once_a_second_and_when_something_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = stepping(tmp_path)
    turns: list[str] = []
    turn_account = MemoryStore.turn_account

    def counted(store: MemoryStore, lease: Lease, turn: Turn) -> Mapping[str, str]:
        turns.append(turn.open)
        return turn_account(store, lease, turn)

    monkeypatch.setattr(MemoryStore, "turn_account", counted)
    job.run(20)
    assert 15 <= len(turns) <= 21
    turns.clear()
    job.nodes["n0"].crash(0, -9, job.now)
    job.run_until(lambda: job.is_running(1), 60)
    assert turns[0] == "draining"
    assert "restart" in turns


@pytest.mark.parametrize("error", [StoreUnavailable("NOPERM"), ValueError("ours")])
def test_an_account_that_can_not_be_kept_is_no_reason_not_to_lead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    job = ToldJob(tmp_path, policy=BEARING, registered=True, every_steps=20)
    turn_account = MemoryStore.turn_account
    asked: list[float] = []

    def refused(store: MemoryStore, lease: Lease, turn: Turn) -> Mapping[str, str]:
        asked.append(job.now)
        raise error

    monkeypatch.setattr(MemoryStore, "turn_account", refused)
    job.run_until(lambda: job.is_running(0))
    leader = job.leader()
    job.run(30)
    assert job.leader() == leader
    assert all(node.coordinator.orders().store_up for node in job.nodes.values())
    if isinstance(error, StoreUnavailable):
        assert len(asked) < 10, "a server that forbids it is asked ever more seldom"
    job.nodes["n0"].crash(0, -9, job.now)
    job.run_until(lambda: job.is_running(1), 60)
    assert job.seen is None
    monkeypatch.setattr(MemoryStore, "turn_account", turn_account)
    job.run_until(lambda: job.seen is not None, 90)


def test_who_leads_again_does_not_take_the_time_of_others_for_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[float] = []

    def noting(
        account: Account | None, standing: AccountState, cluster: Cluster, heard: AccountInput
    ) -> Turn:
        told.append(heard.since_s)
        return next_turn(account, standing, cluster, heard)

    monkeypatch.setattr(accounting, "next_turn", noting)
    job = stepping(tmp_path)
    for _ in range(10):
        job.depose()
        job.run(4)
    assert 0 < max(told) < 2


SPELLS = 25
"""Things that happen to a job, one after the other."""


@pytest.mark.parametrize("seed", range(5))
def test_whatever_happens_the_sum_is_the_wall_clock(tmp_path: Path, seed: int) -> None:
    """ToldJob looks at the account after every tick."""
    chance = random.Random(seed)
    job = stepping(tmp_path, nodes=3, spares=1, slots=1, least=2, seed=seed)
    for _ in range(SPELLS):
        happen(job, chance)
        job.run(chance.uniform(0.1, 4.0))
    job.server.resume()
    job.run_until(lambda: job.plan is not None and job.plan.state == "running", 120)
    job.run(10)
    account = job.seen
    assert account is not None
    wall_s = job.now - job.began_s
    assert account.total_us / 1e6 == pytest.approx(wall_s, rel=0.005, abs=1.2)
    assert account.seconds(Category.OTHER) < 0.01 * wall_s
    assert sum(account.micros.values()) / 1e6 == pytest.approx(wall_s, rel=0.02, abs=2.5)
    assert account.seconds(Category.PRODUCTIVE) > 0.2 * wall_s


def happen(job: ToldJob, chance: random.Random) -> None:
    running = [node for node in job.nodes.values() if node.state == "running"]
    what = chance.choice(["crash", "hang", "depose", "away", "empty", "restart", "failover", "nap"])
    if what == "crash" and running:
        chance.choice(running).crash(0, -9, job.now)
    elif what == "hang" and running:
        chance.choice(running).frozen.add(0)
    elif what == "depose" and not job.server._is_paused:
        job.depose()
    elif what == "away":
        job.server.pause()
        job.run(chance.choice([0.5, 3.0, 25.0]))
        job.server.resume()
    elif what == "empty":
        job.server.empty()
    elif what == "restart":
        job.server.restart()
    elif what == "failover":
        job.server.fail_over(lost_writes=chance.randrange(20))
    elif what == "nap":
        job.now += chance.choice([1.0, 30.0])


def test_the_check_of_the_sum_can_fail(tmp_path: Path) -> None:
    job = stepping(tmp_path)
    for held in (job.server._jobs["job"].sections[Section.ACCOUNT],):
        held.values["s:productive"] = str(int(held.values["s:productive"]) - 1)
    with pytest.raises(AssertionError):
        job.run(1)
