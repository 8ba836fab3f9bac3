"""The demonstration must say so when Holdfast got something wrong."""

from __future__ import annotations

import dataclasses

from holdfast_sidecar.cli.demonstration.job import Event, FaultKind
from holdfast_sidecar.cli.demonstration.verdict import (
    DemoVerdict,
    FaultResult,
    Injected,
    judge_fault,
    judge_save,
)
from holdfast_sidecar.records.checkpoint import LedgerEntry
from holdfast_sidecar.records.plan import Incident

FREEZE = Injected(Event(FaultKind.FREEZE_RANK, at_step=120, rank=1), "a", 123, 1, 1000.0)
FOUND = Incident(
    "i1",
    attempt=1,
    cause="hang",
    culprit_node="a",
    culprit_ranks=[1],
    detected_unix_s=1001.5,
    recovered_unix_s=1006.0,
    step_reached=124,
    step_resumed=100,
)


def test_a_fault_rightly_found_has_its_times_and_no_problem() -> None:
    row = judge_fault(FREEZE, FOUND)

    assert (row.detected_s, row.recovered_s, row.steps_lost) == (1.5, 6.0, 24)
    assert (row.where, row.culprit) == ("rank 1 on a", "rank 1 on a (hang)")
    assert row.problems == ()


def test_blaming_the_victim_is_a_problem() -> None:
    row = judge_fault(FREEZE, dataclasses.replace(FOUND, culprit_ranks=[2], culprit_node="b"))
    assert row.problems == ("blamed rank 2 on b, was rank 1 on a",)


def test_the_wrong_cause_is_a_problem() -> None:
    row = judge_fault(FREEZE, dataclasses.replace(FOUND, cause="crash"))
    assert row.problems == ("called crash, should be hang or stall",)


def test_a_fault_nobody_noticed_is_a_problem() -> None:
    assert judge_fault(FREEZE, None).problems == ("was never noticed",)


def test_a_fault_without_recovery_is_a_problem_and_has_no_cost_yet() -> None:
    row = judge_fault(FREEZE, dataclasses.replace(FOUND, recovered_unix_s=0.0))
    assert row.problems == ("did not recover",)
    assert row.recovered_s is None
    assert row.steps_lost is None


def test_a_lost_node_is_blamed_with_all_its_ranks() -> None:
    injected = Injected(Event(FaultKind.KILL_NODE, at_step=1, rank=2), "b", 1, 2, 0.0)
    incident = dataclasses.replace(
        FOUND, cause="node_lost", culprit_node="b", culprit_ranks=[2, 3], attempt=2
    )
    assert judge_fault(injected, incident).problems == ()
    assert judge_fault(injected, incident).where == "ranks 2, 3 on b"


def test_a_checkpoint_that_never_came_is_a_problem() -> None:
    injected = Injected(Event(FaultKind.SAVE, at_step=170), "", 171, 2, 100.0)
    entry = LedgerEntry("s1", "", 200, 2, 1, "", "complete", 10, 4, at_unix_s=101.25)

    assert judge_save(injected, "rank 1: disk full").problems == (
        "no checkpoint was completed: rank 1: disk full",
    )
    assert judge_save(injected, entry).recovered_s == 1.25


def test_the_verdict_is_good_only_when_the_weights_are_the_same() -> None:
    same = DemoVerdict((), undisturbed_weights="ab", survived_weights="ab", seconds=1.0)

    assert same.all_problems == ()
    assert same.as_json()["ok"] is True
    for other in ("ac", ""):
        differing = dataclasses.replace(same, survived_weights=other)
        assert differing.all_problems == ("the final weights differ",)
        assert differing.as_json()["ok"] is False


def test_a_problem_of_one_event_fails_the_whole() -> None:
    row = FaultResult(
        "kill a rank", "rank 3 on b", 60, None, "-", None, None, ("was never noticed",)
    )
    verdict = DemoVerdict((row,), undisturbed_weights="ab", survived_weights="ab", seconds=1.0)
    assert verdict.all_problems == ("kill a rank: was never noticed",)
