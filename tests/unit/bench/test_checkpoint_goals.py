from __future__ import annotations

from typing import Any

import pytest
from bench.benchmark import NotRun, Sample
from bench.checkpoint.goals import figures
from bench.checkpoint.lost_work import completed, lost, parse_copied_step
from bench.checkpoint.names import COMPUTING, DCP_PROCESS, SLEEPING
from bench.figures import NOT_RUN, Figure


def named(samples: list[Sample], start: str) -> Figure:
    (found,) = (figure for figure in figures(samples) if figure.name.startswith(start))
    return found


def blocked(contestant: str, *seconds: float, first_s: float = 9.0) -> list[Sample]:
    common = {"row": "blocked", "contestant": contestant}
    later = [{**common, "blocked_s": each, "is_first": False} for each in seconds]
    return [{**common, "blocked_s": first_s, "is_first": True}, *later]


def in_flight(contestant: str, kind: str, slowdown: float) -> Sample:
    idle_s, busy_s = [0.04] * 3, [0.04 * slowdown] * 3
    common = {"row": "in-flight", "contestant": contestant, "kind": kind, "write_s": 1.0}
    return {**common, "idle_s": idle_s, "busy_s": busy_s}


def test_without_samples_every_goal_is_not_run() -> None:
    goals = [figure for figure in figures([]) if figure.goal is not None]
    assert len(goals) == 10
    assert {figure.met for figure in goals} == {NOT_RUN}


def test_later_snapshots_are_compared_and_first_ones_are_not_among_them() -> None:
    samples = [
        *blocked("Holdfast", 0.025, 0.026, 0.027, first_s=0.08),
        *blocked("plain copy", 0.02, 0.02, 0.02),
        *blocked("DCP thread, one cached stager", 0.05, 0.05, 0.05),
    ]
    against_copy = named(samples, "blocked: Holdfast / plain copy")
    assert against_copy.value == pytest.approx(1.3)
    assert against_copy.met is True
    assert named(samples, "blocked: Holdfast / DCP").value == pytest.approx(0.52)
    first = named(samples, "blocked: first Holdfast snapshot")
    assert first.value == pytest.approx(0.08 / 0.026)
    assert first.met is False


def test_what_a_boundary_costs_while_there_are_no_slots_is_no_snapshot() -> None:
    without: Sample = {"row": "blocked", "contestant": "Holdfast", "without_slots_s": 7.0}
    samples = [*blocked("Holdfast", 0.02), without]
    own = [figure for figure in figures(samples) if figure.name == "blocked: Holdfast"]
    assert [figure.value for figure in own] == [pytest.approx(20.0)]
    assert named(samples, "boundary while").value == pytest.approx(7000.0)


@pytest.mark.parametrize(("slowdown", "met"), [(1.05, True), (1.06, False)])
def test_sleeping_steps_have_the_tighter_limit(slowdown: float, met: bool) -> None:
    samples = [in_flight("Holdfast", SLEEPING, slowdown)]
    assert named(samples, "sleeping steps, write in flight / none: Holdfast").met is met
    assert named(samples, "computing steps, write in flight / none: Holdfast").met == NOT_RUN


@pytest.mark.parametrize(
    ("own", "peer", "met"),
    [(1.10, 1.30, True), (1.10, 1.15, False), (0.99, 1.00, True), (1.01, 1.00, False)],
)
def test_the_slowdown_is_at_most_half_of_process_modes(own: float, peer: float, met: bool) -> None:
    samples = [in_flight("Holdfast", COMPUTING, own), in_flight(DCP_PROCESS, COMPUTING, peer)]
    assert named(samples, "computing steps, slowdown").met is met


def test_a_snapshot_is_compared_with_what_lies_on_disk_and_not_in_the_cache() -> None:
    common = {"row": "load"}
    samples: list[Sample] = [
        {**common, "contestant": "Holdfast", "load_s": 0.1},
        {**common, "contestant": "DCP", "load_s": 0.6, "is_cold": True},
        {**common, "contestant": "DCP", "load_s": 0.05, "is_cold": False},
    ]
    figure = named(samples, "load: snapshot / DCP from disk")
    assert figure.value == pytest.approx(1 / 6)
    assert figure.met is True
    cached = named(samples, "load: snapshot / DCP from the page cache")
    assert cached.value == pytest.approx(2.0)
    assert cached.met is None


def test_one_lost_step_misses_the_goal() -> None:
    common = {"row": "lost-rank", "contestant": "Holdfast"}
    samples = [{**common, "lost_steps": lost_steps} for lost_steps in (0, 0, 1)]
    assert named(samples, "SIGKILL of a rank, every=1: lost steps, worst").met is False
    assert named(samples[:2], "SIGKILL of a rank, every=1: lost steps, worst").met is True


def test_copies_in_passing_may_lose_what_was_exported_and_no_more() -> None:
    common = {"row": "lost-node", "contestant": "Holdfast", "peer": "async", "copied_step": 40}
    good = {**common, "resumed": 41, "lost_steps": 12}
    bad = {**common, "resumed": 39, "lost_steps": 14}
    start = "lost node, peer copies in passing: more lost"
    assert named([good], start).met is True
    assert named([good, bad], start).met is False


def test_copies_in_step_may_lose_nothing() -> None:
    sample: Sample = {
        "row": "lost-node",
        "contestant": "Holdfast",
        "peer": "sync",
        "copied_step": 40,
        "resumed": 49,
        "lost_steps": 1,
    }
    assert named([sample], "lost node, peer copies in step").met is False


def line(rank: int, attempt: int, **facts: Any) -> dict[str, Any]:
    return {"rank": rank, "attempt": attempt, **facts}


def test_a_step_counts_as_completed_when_every_rank_said_so() -> None:
    lines = [line(0, 0, step=7), line(1, 0, step=6), line(0, 0, step=8), line(0, 1, step=9)]
    assert completed(lines, 0) == 6
    assert completed(lines[:1], 0) == -1


def test_lost_is_what_was_completed_and_is_behind_where_the_next_attempt_began() -> None:
    ends = [line(0, 0, step=8), line(1, 0, step=9)]
    assert lost([*ends, line(0, 1, resumed=8), line(1, 1, resumed=8)], 0)["lost_steps"] == 0
    assert lost([*ends, line(0, 1, resumed=5), line(1, 1, resumed=5)], 0)["lost_steps"] == 3
    with pytest.raises(NotRun, match="did not begin at one step"):
        lost([*ends, line(0, 1, resumed=5), line(1, 1, resumed=6)], 0)


def test_the_exported_step_is_found_on_a_page_and_its_absence_too() -> None:
    page = '# HELP holdfast_peer_copied_step Newest.\nholdfast_peer_copied_step{run="a"} 41.0\n'
    assert parse_copied_step(page) == 41
    assert parse_copied_step(page.splitlines()[0]) is None
