"""What lies between two calls of an optimizer, as a sidecar learns it."""

from __future__ import annotations

import dataclasses

from tests.unit.ranks.scene import history, look, moment, steps

from holdfast.contract.page import Record, Word
from holdfast_sidecar.config.settings import Settings
from holdfast_sidecar.ranks.history import WINDOWS_KEPT, OptimizerWindows
from holdfast_sidecar.ranks.observation import RankLook
from holdfast_sidecar.ranks.probe import report_rank


def turn(total_s: float, evaluating_s: float = 0.0) -> Record:
    total_us, evaluating_us = int(total_s * 1e6), int(evaluating_s * 1e6)
    return Record(
        1, 0, total_us, 0, total_us - evaluating_us, 0, 0, 0, 0, 0, 0.0, evaluating_us=evaluating_us
    )


def after(
    turns: list[tuple[Record, int]], windows: OptimizerWindows | None = None
) -> OptimizerWindows:
    """A look at each of these steps, and at how often the optimizer was called by then."""
    known = windows or OptimizerWindows()
    for record, calls in turns:
        known = known.after([record], calls)
    return known


def test_a_window_is_as_long_as_all_its_steps() -> None:
    gathering = [(turn(10.0), calls) for calls in (0, 0, 0, 1, 1, 1, 1, 2)]
    assert after(gathering).longest_s == 40.0


def test_where_no_gradients_are_gathered_it_is_the_longest_of_the_latest_steps() -> None:
    assert after([(turn(s), n + 1) for n, s in enumerate((2.0, 5.0, 3.0))]).longest_s == 5.0


def test_several_calls_between_two_looks_share_what_was_seen() -> None:
    known = after([(turn(1.0), 1)])
    assert known.after([turn(1.0)] * 6, 4).longest_s == 2.0


def test_what_comes_rarely_is_no_part_of_it() -> None:
    assert after([(turn(130.0, evaluating_s=120.0), 1)]).longest_s == 10.0


def test_a_long_one_is_forgotten_after_some_more() -> None:
    known = after([(turn(60.0), 1)])
    later = after([(turn(2.0), 2 + n) for n in range(WINDOWS_KEPT)], known)
    assert later.longest_s == 2.0


def test_of_a_job_that_was_found_under_way_the_first_is_not_known() -> None:
    known = OptimizerWindows().after([turn(1.0)] * 3, 500)
    assert known.longest_s == 0.0
    assert known.after([turn(7.0)], 501).longest_s == 7.0


def test_without_an_optimizer_that_is_heard_there_are_none() -> None:
    assert after([(turn(1.0), 0)] * 50).longest_s == 0.0


def test_a_rank_s_report_tells_its_longest_window_beside_the_time_of_a_step() -> None:
    def after_steps(count: int, calls: int) -> RankLook:
        seen = look(1.0, records=steps(count, forward=1000))
        words = list(seen.words)
        words[Word.OPTIMIZER_CALLS] = calls
        return dataclasses.replace(seen, words=tuple(words))

    report = report_rank(history(after_steps(3, 0), after_steps(5, 1)), Settings(), moment(1.0))
    assert (report.step_s, report.window_s) == (1.0, 8.0)
