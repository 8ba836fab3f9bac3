"""When a checkpoint counts as good, and what keeps it from it."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from holdfast_sidecar.config.settings import CheckpointSettings
from holdfast_sidecar.policy.checkpoint_choice import has_passed, on_trial, state_of_trial
from holdfast_sidecar.policy.cluster import Cluster
from holdfast_sidecar.records.checkpoint import LedgerEntry
from holdfast_sidecar.records.findings import Finding, Kind, Remedy
from holdfast_sidecar.records.plan import Candidate, Member, Plan
from holdfast_sidecar.records.reports import NodeReport, RankReport

SETTINGS = CheckpointSettings(good_after_s=120.0, good_after_steps=10)
PLAN = Plan(
    2,
    5,
    "running",
    members=[Member("a", "x", 0, 0, 1), Member("b", "y", 1, 1, 1)],
    world_size=2,
    resume=[Candidate("r", "/c/r", 30), Candidate("o", "/c/o", 20)],
)


def entry(name: str, step: int, attempt: int = 2, verdict: str = "complete") -> LedgerEntry:
    return LedgerEntry(name, f"/c/{name}", step, attempt, 5, "", verdict, 1, 2, 0.0, nodes=["a"])


def rank(number: int, step: int = 60, resumed: int = 30, **more: object) -> RankReport:
    report = RankReport(number, 0, 1, step, "forward", 0.0, 0.1, 0.1, resumed_step=resumed)
    return dataclasses.replace(report, **more)  # type: ignore[arg-type]


def cluster(
    *ranks: RankReport,
    entries: tuple[LedgerEntry, ...] = (),
    findings: tuple[Finding, ...] = (),
    on: str = "a",
) -> Cluster:
    ranks = ranks or (rank(0), rank(1))
    nodes = {
        name: NodeReport(name, "x", 1, 2, 5, 2, True, ranks=[report])
        for name, report in zip("ab", ranks, strict=False)
    }
    nodes[on] = dataclasses.replace(nodes[on], findings=list(findings))
    return Cluster(nodes=nodes, ledger={e.identifier: e for e in entries})


def test_an_attempt_speaks_for_what_it_wrote_and_what_it_goes_back_to() -> None:
    of_a_branch = entry("left", 50, attempt=1)
    entries = (
        entry("new", 50),
        entry("r", 30, 1),
        entry("o", 20, 0),
        of_a_branch,
        entry("p", 40, verdict="poisoned"),
        entry("g", 45, verdict="good"),
    )
    names = [e.identifier for e in on_trial(cluster(entries=entries), PLAN)]
    assert names == ["o", "r", "new"]


def test_what_the_ranks_could_not_load_is_not_on_trial() -> None:
    walked_back = cluster(rank(0, resumed=20), rank(1, resumed=20), entries=(entry("r", 30, 1),))
    assert on_trial(walked_back, PLAN) == []


def test_nothing_is_said_before_all_ranks_are_seen() -> None:
    alone = cluster(rank(0), entries=(entry("new", 50),))
    assert on_trial(alone, PLAN) == []
    assert state_of_trial(entry("new", 50), alone, PLAN) == ""


def test_it_takes_both_the_time_and_the_steps() -> None:
    ranks = {0: rank(0, 60), 1: rank(1, 59)}
    assert has_passed(entry("new", 49), ranks, 120.0, SETTINGS)
    assert not has_passed(entry("new", 50), ranks, 120.0, SETTINGS)
    assert not has_passed(entry("new", 49), ranks, 119.0, SETTINGS)


def test_steps_count_from_where_this_attempt_took_over() -> None:
    ranks = {0: rank(0, step=36, resumed=30)}
    assert not has_passed(entry("o", 20, 0), ranks, 500.0, SETTINGS)


def test_numbers_that_are_not_finite_stop_the_trial_and_then_begin_it_anew() -> None:
    new = entry("new", 50)
    before = state_of_trial(new, cluster(), PLAN)
    ill = cluster(rank(0), rank(1, is_loss_finite=False, nonfinite_losses=1))
    assert state_of_trial(new, ill, PLAN) == ""
    after = state_of_trial(new, cluster(rank(0), rank(1, nonfinite_losses=1)), PLAN)
    assert after not in ("", before)


@pytest.mark.parametrize(
    ("now", "seen"),
    [
        ({"is_gradient_finite": False}, {"nonfinite_gradients": 1}),
        ({"spike_onset": 55}, {"spikes": 1}),
    ],
)
def test_gradients_and_spikes_do_as_losses_that_are_not_finite(
    now: dict[str, Any], seen: dict[str, Any]
) -> None:
    new = entry("new", 50)
    before = state_of_trial(new, cluster(), PLAN)
    assert state_of_trial(new, cluster(rank(0), rank(1, **now)), PLAN) == ""
    assert state_of_trial(new, cluster(rank(0), rank(1, **seen)), PLAN) not in ("", before)


@pytest.mark.parametrize("remedy", [Remedy.NONE, Remedy.RESTART_APP])
@pytest.mark.parametrize("kind", [Kind.GPU_FAULT, Kind.LINK_DOWN])
def test_what_is_only_told_and_a_program_s_own_fault_hold_nothing_back(
    kind: Kind, remedy: Remedy
) -> None:
    told = (Finding(kind, "a", 1.0, 0.9, what="xid 13", remedy=remedy),)
    new = entry("new", 50)
    assert state_of_trial(new, cluster(findings=told), PLAN) == state_of_trial(new, cluster(), PLAN)


def test_a_hardware_fault_counts_on_a_node_that_wrote_it_only() -> None:
    down = (Finding(Kind.LINK_DOWN, "a", 1.0, 0.9, what="eth0", remedy=Remedy.REPLACE),)
    new = entry("new", 50)
    assert state_of_trial(new, cluster(findings=down), PLAN) == ""
    assert state_of_trial(new, cluster(findings=down, on="b"), PLAN) != ""
    told = Finding(Kind.GPU_FAULT, "a", 1.0, 1.0, what="gpu0-recovery")  # of its IMEX domain
    assert state_of_trial(new, cluster(findings=(told,)), PLAN) != ""
    hit = dataclasses.replace(told, remedy=Remedy.RESET_GPU)
    assert state_of_trial(new, cluster(findings=(hit,)), PLAN) == ""
    slow = (Finding(Kind.STRAGGLER, "a", 1.0, 0.9),)
    assert state_of_trial(new, cluster(findings=slow), PLAN) != ""


@pytest.mark.parametrize("remedy", list(Remedy))
def test_an_xid_of_the_program_or_one_that_asks_for_nothing_holds_no_checkpoint_back(
    remedy: Remedy,
) -> None:
    xid = (Finding(Kind.GPU_FAULT, "a", 1.0, 0.9, what="xid 31", remedy=remedy),)
    held_back = state_of_trial(entry("new", 50), cluster(findings=xid), PLAN) == ""
    assert held_back is remedy.blames_hardware
