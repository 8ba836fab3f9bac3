"""Which checkpoint is tried after which incident."""

from __future__ import annotations

import pytest

from holdfast_sidecar.policy import checkpoint_choice
from holdfast_sidecar.policy.checkpoint_choice import (
    RestoreChoice,
    is_about_numbers,
    onset_in,
    trusted_below,
    trusted_now,
)
from holdfast_sidecar.policy.cluster import Cluster
from holdfast_sidecar.records.plan import Candidate, Incident, Member, Plan
from holdfast_sidecar.records.reports import AgentReport, Exit, NodeReport, RankReport


def line(*steps: int, good: tuple[int, ...] = ()) -> list[Candidate]:
    return [Candidate(f"c{step}", f"/c/{step}", step, is_good=step in good) for step in steps]


def incident(cause: str = "crash", onset: int = -1, is_of_script: bool = False) -> Incident:
    return Incident("i", 0, cause, onset_step=onset, is_of_script=is_of_script)


def own_error(onset: int) -> Incident:
    """Of a script that may have looked at its loss."""
    return incident("crash", onset, is_of_script=True)


PLAN = Plan(0, 1, "ended", [Member("a", "x", 0, 0, 1)], 1)


def choose(
    candidates: list[Candidate], found: Incident, snapshot: Candidate | None = None
) -> RestoreChoice:
    below = trusted_below(Cluster(plan=PLAN), PLAN, found)
    return checkpoint_choice.choose(candidates, found, below, snapshot)


def steps(candidates: tuple[Candidate, ...]) -> list[int]:
    return [candidate.step for candidate in candidates]


@pytest.mark.parametrize("cause", ["crash", "hang", "node_lost", "grow"])
def test_after_a_crash_the_newest_comes_first_good_or_not(cause: str) -> None:
    chosen = choose(line(40, 30, 20, good=(20,)), incident(cause))
    assert steps(chosen.candidates) == [40, 30, 20]
    assert chosen.abandoned == ()
    assert chosen.note == ""


@pytest.mark.parametrize("found", [incident("nonfinite", 45), own_error(45)])
def test_after_bad_numbers_only_good_ones_of_before_are_tried(found: Incident) -> None:
    chosen = choose(line(50, 40, 30, 20, good=(50, 30, 20)), found)
    assert steps(chosen.candidates) == [30, 20]
    assert steps(chosen.abandoned) == [50, 40]
    assert "step 30, the newest good checkpoint" in chosen.note


def test_the_step_at_which_numbers_went_wrong_is_not_before_it() -> None:
    for found in (incident("crash", 30), own_error(30)):
        assert steps(choose(line(30, 20, good=(30, 20)), found).candidates) == [20]


def test_without_a_good_one_the_oldest_before_is_tried_and_people_are_told() -> None:
    chosen = choose(line(50, 40, 30), own_error(45))
    assert steps(chosen.candidates) == [30]
    assert steps(chosen.abandoned) == [50, 40]
    assert "no checkpoint before has proved good: back to the oldest, of step 30" in chosen.note


def test_what_something_else_ended_goes_on_from_the_newest_before_good_or_not() -> None:
    candidates = line(50, 40, 30, 20, good=(50, 30, 20))
    chosen = choose(candidates, incident("crash", 45))
    assert steps(chosen.candidates) == [40, 30, 20]
    assert steps(chosen.abandoned) == [50]
    assert chosen.note == "numbers were not finite from step 45 on: back to step 40"
    snapshot = Candidate("snapshot", "", 44, "snapshot", below=45)
    beside = choose(candidates, incident("crash", 45), snapshot)
    assert (beside.candidates, beside.abandoned) == (chosen.candidates, chosen.abandoned)
    assert beside.note == (
        "numbers were not finite from step 45 on: back to the newest snapshot before step 45"
    )


def test_a_snapshot_from_before_is_gone_on_from_though_all_checkpoints_are_from_after() -> None:
    snapshot = Candidate("snapshot", "", 6, "snapshot", below=7)
    chosen = choose(line(50, 40), incident("crash", 7), snapshot)
    assert (chosen.candidates, chosen.obstacle) == ((), "")
    assert steps(chosen.abandoned) == [50, 40]


def test_a_script_that_raises_over_its_loss_is_not_given_the_state_before_it() -> None:
    """What it raised over may have been in the state for long, and finite."""
    of_storage = Incident(
        "i", 0, "crash", onset_step=45, is_of_script=True, is_of_surroundings=True
    )
    below = [trusted_below(Cluster(), PLAN, one) for one in (own_error(45), of_storage)]
    assert below == [0, 45]


def test_what_was_not_to_be_gone_on_from_is_not_while_the_attempt_runs_either() -> None:
    gone_on = Plan(3, 1, "running", resume=[Candidate("snapshot", "", 8, "snapshot", below=9)])
    at_8, at_9 = ([RankReport(0, 0, 1, step, "forward", 0.0, 0.1, 0.1)] for step in (8, 9))
    assert trusted_now(gone_on, at_8, -1) == 9
    assert trusted_now(gone_on, at_9, -1) == float("inf")
    assert trusted_now(gone_on, at_9, 9) == 0
    assert trusted_now(gone_on, at_9, 12) == 12


def test_an_onset_that_nobody_knows_leaves_the_good_ones() -> None:
    assert steps(choose(line(50, 40, good=(40,)), incident("corruption")).candidates) == [40]


def test_it_does_not_start_from_nothing_when_all_checkpoints_are_from_after() -> None:
    for found in (incident("crash", 7), own_error(7)):
        chosen = choose(line(50, 40, good=(40,)), found)
        assert chosen.candidates == ()
        assert chosen.obstacle == (
            "numbers were not finite from step 7 on, and no checkpoint is from before"
        )
        assert choose([], found).obstacle == ""


def test_a_crash_with_numbers_that_were_not_finite_is_about_numbers() -> None:
    assert is_about_numbers(incident("crash", 0))
    assert is_about_numbers(incident("spike"))
    assert not is_about_numbers(incident("crash"))
    assert not is_about_numbers(None)


def test_the_onset_is_the_earliest_of_any_rank_that_is_not_well_now() -> None:
    def job(*onsets: int, exits: tuple[Exit, ...] = ()) -> Cluster:
        reports = [
            RankReport(rank, rank, 1, 60, "forward", 0.0, 0.1, 0.1, onset_step=onset)
            for rank, onset in enumerate(onsets)
        ]
        node = NodeReport("a", "x", 1, 0, 1, 0, True, ranks=reports)
        agent = AgentReport("a", "x", "failed", 0, 1, 3, "", 1, 1, exits=list(exits))
        return Cluster(nodes={"a": node}, agents={"a": agent})

    plan = Plan(0, 1, "running", [Member("a", "x", 0, 0, 3)], 3)
    assert onset_in(job(-1, 48, 45), plan) == 45
    assert onset_in(job(-1, -1, -1), plan) == -1
    ended = Exit(1, 1, 9, 1, 5.0, 0, onset_step=44)
    assert onset_in(job(-1, -1, -1, exits=(ended,)), plan) == 44
