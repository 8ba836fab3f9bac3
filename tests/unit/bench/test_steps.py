from __future__ import annotations

import pytest
from bench.launch.steps import Event, newest_pid, parse_event, recovery, steady, step_seconds

SECOND = 1_000_000_000


def event(at_s: float, name: str, rank: int, pid: int, step: int = 0, world: int = 2) -> Event:
    return Event(round(at_s * SECOND), name, rank, world, pid, 0, step)


BEFORE = [
    event(0.0, "started", 0, 10),
    event(0.0, "started", 1, 11),
    event(9.0, "step", 0, 10, 40),
    event(9.1, "step", 1, 11, 40),
]


def test_a_line_of_the_job_is_read_and_a_torn_one_is_left_out() -> None:
    assert parse_event("5 step 1 2 77 0 40\n") == Event(5, "step", 1, 2, 77, 0, 40)
    assert parse_event("5 step 1 2 7") is None
    assert parse_event("5 step 1 2 77 0 40") is None


def test_the_job_is_back_when_the_last_of_all_new_ranks_has_stepped() -> None:
    after = [
        event(11.0, "started", 0, 20),
        event(11.5, "started", 1, 21),
        event(12.5, "loaded", 0, 20, 20),
        event(12.6, "loaded", 1, 21, 20),
        event(13.0, "step", 0, 20, 21),
        event(13.5, "step", 1, 21, 21),
        event(14.0, "step", 0, 20, 22),
    ]
    result = recovery([*BEFORE, *after], 10 * SECOND, [2])
    assert result.first_new_process_s == pytest.approx(1.0)
    assert result.loaded_s == pytest.approx(2.6)
    assert result.every_rank_stepping_s == pytest.approx(3.5)
    assert result.step_resumed == 20


def test_a_step_that_a_survivor_still_finishes_is_no_recovery() -> None:
    survivor = event(10.01, "step", 0, 10, 41)
    stepping = event(13.0, "step", 1, 21, 21)
    result = recovery([*BEFORE, survivor, stepping], 10 * SECOND, [2])
    assert result.every_rank_stepping_s is None


def test_one_rank_alone_is_no_recovery_but_its_start_is_seen() -> None:
    result = recovery([*BEFORE, event(11.0, "started", 0, 20)], 10 * SECOND, [2])
    assert result.first_new_process_s == pytest.approx(1.0)
    assert result.every_rank_stepping_s is None


def test_a_shrunken_job_is_back_with_fewer_ranks_only_where_that_was_asked_for() -> None:
    alone = [
        event(12.0, "loaded", 0, 20, 20, world=1),
        event(13.0, "step", 0, 20, 21, world=1),
    ]
    assert recovery([*BEFORE, *alone], 10 * SECOND, [1]).every_rank_stepping_s == pytest.approx(3)
    assert recovery([*BEFORE, *alone], 10 * SECOND, [2]).every_rank_stepping_s is None


def test_the_job_is_steady_once_every_rank_has_finished_the_step() -> None:
    assert steady(BEFORE, 2, 40)
    assert not steady(BEFORE, 2, 41)
    assert not steady(BEFORE[:3], 2, 40)


def test_the_newest_process_of_a_rank_is_the_one_that_wrote_last() -> None:
    assert newest_pid([*BEFORE, event(12.0, "started", 1, 21)], 1) == 21


def test_step_time_is_the_median_gap_inside_one_process() -> None:
    steps = [event(t, "step", 0, 10, n) for n, t in enumerate((0.0, 5.0, 5.1, 5.2, 5.9), start=1)]
    assert step_seconds(steps, skip=1) == pytest.approx(0.1)
    assert step_seconds([]) is None
