"""While a step is counted a mark stands among the evidence; one that was left ends all counting."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdfast import environment
from holdfast.counting_mark import CountingMark


def of_attempt(state: Path, number: int) -> CountingMark:
    folder = state / f"attempt-{number}"
    folder.mkdir(exist_ok=True)
    return CountingMark({environment.EVIDENCE_DIR: str(folder)})


def test_what_an_earlier_attempt_left_is_seen_by_all_later_ones(tmp_path: Path) -> None:
    of_attempt(tmp_path, 0).put()
    assert [of_attempt(tmp_path, number).was_left() for number in (1, 2)] == [True, True]


def test_the_marks_of_the_own_attempt_are_no_reason(tmp_path: Path) -> None:
    of_attempt(tmp_path, 0).put()
    assert not of_attempt(tmp_path, 0).was_left()


def test_once_the_step_is_over_nothing_is_left(tmp_path: Path) -> None:
    mark = of_attempt(tmp_path, 0)
    mark.put()
    mark.remove()
    assert not of_attempt(tmp_path, 1).was_left()


def test_a_rank_that_ends_well_takes_it_along_and_one_that_failed_leaves_it_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    mark = of_attempt(tmp_path, 0)
    mark.put()
    mark.end(has_failed=False)
    assert (of_attempt(tmp_path, 1).was_left(), caplog.records) == (False, [])
    mark.put()
    mark.end(has_failed=True)
    assert (of_attempt(tmp_path, 1).was_left(), len(caplog.records)) == (True, 1)


def test_a_forked_child_lets_its_parents_mark_be(tmp_path: Path) -> None:
    mark = of_attempt(tmp_path, 0)
    mark.put()
    child = os.fork()
    if child == 0:
        mark.forget()
        mark.remove()
        os._exit(0)
    os.waitpid(child, 0)
    assert of_attempt(tmp_path, 1).was_left()


def test_without_a_place_for_evidence_there_is_no_mark_and_no_error(tmp_path: Path) -> None:
    for environ in ({}, {environment.EVIDENCE_DIR: str(tmp_path / "gone" / "attempt-1")}):
        mark = CountingMark(environ)
        mark.put()
        mark.remove()
        assert not mark.was_left()
