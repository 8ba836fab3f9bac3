"""What failures cost by what is left after them."""

from __future__ import annotations

import dataclasses

import pytest

from holdfast_sidecar.config.settings import CheckpointSettings
from holdfast_sidecar.policy.checkpoint_schedule import look_ahead, what_if, work_out
from holdfast_sidecar.policy.cluster import Cluster
from holdfast_sidecar.records.checkpoint import (
    LedgerEntry,
    PeerOrder,
    SnapshotOrder,
    SnapshotReport,
)
from holdfast_sidecar.records.plan import Member, Plan
from holdfast_sidecar.records.reports import NodeReport, RankReport

SETTINGS = CheckpointSettings(dir="/c", most_every_s=600.0)
ENTRY = LedgerEntry("a", "", 1, 0, 1, "", "complete", 1, 2, 5.0, blocked_s=3.0, write_s=20.0)


def node(name: str, rank: int, copies: dict[str, list[int]]) -> NodeReport:
    report = RankReport(rank, 0, 1, 50 + rank, "forward", 0.0, 0.4, 0.4)
    return NodeReport(
        name, "x", 1, 0, 1, 0, True, ranks=[report], snapshot=SnapshotReport(copies=copies)
    )


JOB = Cluster(
    plan=Plan(0, 1, "running", [Member("a", "x", 0, 0, 1), Member("b", "y", 1, 1, 1)], 2),
    nodes={"a": node("a", 0, {"1": [46, 43]}), "b": node("b", 1, {"0": [44]})},
    ledger={"a": ENTRY},
    snapshot=SnapshotOrder(0, 1, 4),
    peer=PeerOrder("p", 0, 1, 46, "armed", 9.0, through=43),
)


def test_the_less_is_left_the_more_is_lost() -> None:
    ahead = look_ahead(work_out(JOB, SETTINGS, 100.0), JOB, SETTINGS)
    assert ahead.lost_with_snapshots_s == pytest.approx(4 * 0.4 / 2)
    assert ahead.copies_behind == 51 - 43, "ranks have newer copies, and none of one step"
    assert ahead.lost_with_copies_s == pytest.approx(8.5 * 0.4)
    assert ahead.lost_s == pytest.approx(600 / 2 + 20)
    assert ahead.lost_to_numbers_s == pytest.approx(600 / 2 + 20 + 120)
    assert ahead.saving_share == pytest.approx(3 / 600)


def test_copies_of_an_earlier_attempt_are_not_what_a_node_s_loss_leaves() -> None:
    assert JOB.plan is not None
    begun = dataclasses.replace(JOB, plan=dataclasses.replace(JOB.plan, attempt=1))
    ahead = look_ahead(work_out(begun, SETTINGS, 100.0), begun, SETTINGS)
    assert (ahead.copies_behind, ahead.lost_with_copies_s) == (None, None)


def test_without_a_job_that_runs_nothing_is_claimed_of_its_memory() -> None:
    stored = Cluster(ledger={"a": ENTRY})
    ahead = look_ahead(work_out(stored, SETTINGS, 100.0), stored, SETTINGS)
    assert ahead.snapshot_every is None
    assert ahead.lost_s is not None


def test_other_figures_change_the_schedule_the_right_way() -> None:
    settings = CheckpointSettings(dir="/c", least_every_s=0.001, most_every_s=1e9)
    schedule = work_out(JOB, settings, 100.0)
    usual_s = schedule.interval.target_s
    changed = {one.change: one.interval_s for one in what_if(schedule, settings)}
    assert changed["failures twice as often"] == pytest.approx(usual_s / 2**0.5, rel=0.01)
    assert changed["the loop kept half as long"] == pytest.approx(usual_s / 2**0.5, rel=0.01)
    assert changed["16 ranks instead of 2"] == pytest.approx(usual_s / 8**0.5, rel=0.01)
    assert changed["ten times the state on the same storage"] > 3 * usual_s


def test_an_interval_that_the_user_set_does_not_answer_to_anything() -> None:
    settings = dataclasses.replace(SETTINGS, every_s=30.0)
    assert what_if(work_out(JOB, settings, 100.0), settings) == []
