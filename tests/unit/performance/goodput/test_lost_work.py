"""Training that has to be done again, in time."""

from __future__ import annotations

from holdfast_sidecar.performance.goodput.accounting import (
    MARKS_KEPT,
    NEWEST_KEPT,
    gone_back,
    net_at,
    with_mark,
)
from holdfast_sidecar.records.account import ProgressMark

MARKS = (ProgressMark(0, 0), ProgressMark(100, 1000), ProgressMark(200, 3000))


def test_between_two_marks_time_grows_evenly_with_the_steps() -> None:
    reached = ProgressMark(220, 3400)
    assert net_at(MARKS, 100, reached) == 1000
    assert net_at(MARKS, 150, reached) == 2000
    assert net_at(MARKS, 210, reached) == 3200
    assert net_at(MARKS, 220, reached) == 3400


def test_who_goes_back_to_the_begin_loses_all_and_who_goes_on_from_the_end_nothing() -> None:
    reached = ProgressMark(220, 3400)
    assert net_at(MARKS, 0, reached) == 0
    assert net_at(MARKS, 500, reached) == 3400
    assert net_at((), 7, reached) == 3400


def test_a_run_that_began_from_a_checkpoint_loses_no_more_than_it_did_itself() -> None:
    marks = (ProgressMark(1000, 0), ProgressMark(1100, 500))
    assert net_at(marks, 900, ProgressMark(1150, 700)) == 0
    assert net_at(marks, 1000, ProgressMark(1150, 700)) == 0


def test_marks_past_the_step_reached_don_t_count() -> None:
    assert net_at(MARKS, 150, ProgressMark(150, 1500)) == 1500
    assert net_at(MARKS, 120, ProgressMark(150, 1500)) == 1200


def test_after_a_restart_the_marks_go_on_from_where_it_went_back_to() -> None:
    marks = gone_back(MARKS, 150, 2000)
    assert marks == (ProgressMark(0, 0), ProgressMark(100, 1000), ProgressMark(150, 2000))
    assert with_mark(marks, ProgressMark(160, 2300))[-1] == ProgressMark(160, 2300)
    assert gone_back(MARKS, 0, 0) == (ProgressMark(0, 0),)


def test_few_marks_are_kept_the_first_and_the_newest_among_them() -> None:
    marks: tuple[ProgressMark, ...] = ()
    for step in range(1000):
        marks = with_mark(marks, ProgressMark(step, 10 * step))
    assert len(marks) <= MARKS_KEPT
    assert marks[0] == ProgressMark(0, 0)
    assert [mark.step for mark in marks[-NEWEST_KEPT + 1 :]] == list(range(993, 1000))
    assert all(
        net_at(marks, step, ProgressMark(1000, 10_000)) == 10 * step for step in (3, 500, 990)
    )


def test_a_step_that_was_marked_before_is_not_marked_again() -> None:
    assert with_mark(MARKS, ProgressMark(200, 9999)) == MARKS
