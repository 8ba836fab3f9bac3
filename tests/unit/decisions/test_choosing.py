"""Which checkpoint is tried after which incident."""

from __future__ import annotations

import pytest

from holdfast_sidecar.decisions.choosing import choose, choose_beside, is_about_numbers, onset_in
from holdfast_sidecar.decisions.cluster import Cluster
from holdfast_sidecar.records.agent import AgentReport, Exit
from holdfast_sidecar.records.incident import Incident
from holdfast_sidecar.records.node import NodeReport
from holdfast_sidecar.records.plan import Candidate, Member, Plan
from holdfast_sidecar.records.rank import RankReport


def line(*steps: int, good: tuple[int, ...] = ()) -> list[Candidate]:
    return [Candidate(f"c{step}", f"/c/{step}", step, is_good=step in good) for step in steps]


def incident(cause: str = "crash", onset: int = -1) -> Incident:
    return Incident("i", 0, cause, onset_step=onset)


def steps(candidates: tuple[Candidate, ...]) -> list[int]:
    return [candidate.step for candidate in candidates]


@pytest.mark.parametrize("cause", ["crash", "hang", "node_lost", "grow"])
def test_after_a_crash_the_newest_comes_first_good_or_not(cause: str) -> None:
    chosen = choose(line(40, 30, 20, good=(20,)), incident(cause))
    assert steps(chosen.candidates) == [40, 30, 20]
    assert chosen.abandoned == ()
    assert chosen.note == ""


@pytest.mark.parametrize("found", [incident("nonfinite", 45), incident("crash", 45)])
def test_after_bad_numbers_only_good_ones_of_before_are_tried(found: Incident) -> None:
    chosen = choose(line(50, 40, 30, 20, good=(50, 30, 20)), found)
    assert steps(chosen.candidates) == [30, 20]
    assert steps(chosen.abandoned) == [50, 40]
    assert "step 30, the newest good checkpoint" in chosen.note


def test_the_step_at_which_numbers_went_wrong_is_not_before_it() -> None:
    assert steps(choose(line(30, 20, good=(30, 20)), incident("crash", 30)).candidates) == [20]


def test_without_a_good_one_the_oldest_before_is_tried_and_people_are_told() -> None:
    chosen = choose(line(50, 40, 30), incident("crash", 45))
    assert steps(chosen.candidates) == [30]
    assert steps(chosen.abandoned) == [50, 40]
    assert "no checkpoint before has proved good: back to the oldest, of step 30" in chosen.note


def test_what_a_snapshot_from_before_goes_on_from_is_not_abandoned() -> None:
    candidates = line(50, 40, 30, 20, good=(50, 30, 20))
    snapshot = Candidate("snapshot", "", 44, "snapshot", below=45)
    chosen = choose_beside(snapshot, candidates, incident("crash", 45))
    assert steps(chosen.candidates) == [30, 20]
    assert steps(chosen.abandoned) == [50]
    assert chosen.note == (
        "numbers were not finite from step 45 on: back to the newest snapshot before step 45"
    )
    newest = Candidate("snapshot", "", 50, "snapshot")
    for first in (None, newest):
        assert choose_beside(first, candidates, incident()) == choose(candidates, incident())


def test_an_onset_that_nobody_knows_leaves_the_good_ones() -> None:
    assert steps(choose(line(50, 40, good=(40,)), incident("corruption")).candidates) == [40]


def test_it_does_not_start_from_nothing_when_all_checkpoints_are_from_after() -> None:
    chosen = choose(line(50, 40, good=(40,)), incident("crash", 7))
    assert chosen.candidates == ()
    assert chosen.obstacle == (
        "numbers were not finite from step 7 on, and no checkpoint is from before"
    )
    assert choose([], incident("crash", 7)).obstacle == ""


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
