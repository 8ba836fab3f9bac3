from __future__ import annotations

import pytest
from bench.figures import NOT_RUN, Figure, at_most, exactly, middle, missed, ratio, table


def test_a_value_at_its_limit_meets_the_goal_and_one_above_misses_it() -> None:
    assert at_most("x", "s", 0.75, 0.75).met is True
    assert at_most("x", "s", 0.7501, 0.75).met is False


def test_what_has_no_value_is_not_run_and_never_met() -> None:
    for figure in (
        at_most("x", "s", None, 1),
        exactly("x", "", None, 20),
        middle("x", "s", []),
    ):
        assert figure.met == NOT_RUN
        assert figure.as_json()["value"] is None


def test_only_a_missed_goal_makes_the_run_fail() -> None:
    not_run = at_most("x", "s", None, 1)
    without_goal = middle("x", "s", [3.0])
    assert not missed([not_run, without_goal, at_most("x", "s", 0.5, 1)])
    assert missed([not_run, exactly("recovered", "of 20", 19, 20)])


def test_a_figure_in_json_has_just_the_five_agreed_fields() -> None:
    assert at_most("cost", "us", 4.5, 10, [4.0, 4.5]).as_json() == {
        "name": "cost",
        "value": 4.5,
        "unit": "us",
        "goal": "<= 10",
        "met": True,
    }


def test_the_ratio_is_of_medians_and_there_is_none_without_both_sides() -> None:
    assert ratio([1.0, 2.0, 90.0], [4.0, 4.0]) == pytest.approx(0.5)
    assert ratio([], [1.0]) is None
    assert ratio([1.0], []) is None


def test_the_table_shows_min_median_max_and_the_verdict() -> None:
    lines = table([at_most("back", "s", 2.0, 1.5, [1.0, 2.0, 3.0]), middle("seen", "s", [])])
    head, back, seen = lines.splitlines()
    assert head.split() == ["figure", "min", "median", "max", "n", "unit", "goal", "met"]
    assert back.split() == ["back", "1", "2", "3", "3", "s", "<=", "1.5", "MISSED"]
    assert seen.split() == ["seen", "not", "run", "s", "not", "run"]


def test_a_missed_figure_without_a_value_is_not_shown_as_not_run() -> None:
    shown = table([Figure("declared", None, "s", "<= 1", met=False)])
    assert "none" in shown
    assert NOT_RUN not in shown
