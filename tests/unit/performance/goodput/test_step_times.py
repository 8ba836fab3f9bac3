"""Where the time of steps went, out of the ranks' lines."""

from __future__ import annotations

import pytest
from tests.unit.policy.pretend_job import node_report, rank_report, step_line

from holdfast_sidecar.performance.goodput.splitting import RANKS_ASKED, StepListener
from holdfast_sidecar.records.account import Category
from holdfast_sidecar.records.reports import NodeReport
from holdfast_sidecar.records.steps import StepLine


def job(*lines: StepLine, ranks: int = 2) -> list[NodeReport]:
    reports = [rank_report(rank, 9) for rank in range(ranks)]
    return [node_report("a", reports, steps=lines)]


def test_a_wait_for_data_is_the_middle_rank_s() -> None:
    lines = [step_line(rank, 5, data=data) for rank, data in enumerate((0, 10_000, 90_000))]
    times = StepListener().follow(0, job(*lines, ranks=3))
    assert times is not None
    assert times.shares[Category.DATA_WAIT] == pytest.approx(0.1)
    assert (times.step, times.step_us) == (5, 100_000)


def test_saving_evaluating_and_compiling_are_those_of_the_rank_that_does_most() -> None:
    lines = [
        step_line(0, 5, lost=100_000, evaluated=20_000),
        step_line(1, 5, total=200_000),
        step_line(0, 6, lost=50_000, compiled=1),
        step_line(1, 6, total=150_000),
    ]
    times = StepListener().follow(0, job(*lines))
    assert times is not None
    assert times.step_us == 175_000
    assert times.shares[Category.SAVING] == pytest.approx(80 / 350)
    assert times.shares[Category.EVALUATING] == pytest.approx(20 / 350)
    assert times.shares[Category.COMPILING] == pytest.approx(50 / 350)


def test_a_block_without_an_ordinary_step_took_as_long_as_usual_beside_what_it_saved() -> None:
    listening = StepListener()
    listening.follow(0, job(step_line(0, 5), ranks=1))
    saving = step_line(0, 6, steps=0, total=0, data=0, lost=300_000)
    times = listening.follow(0, job(step_line(0, 5), saving, ranks=1))
    assert times is not None
    assert times.step_us == 400_000
    assert times.shares[Category.SAVING] == pytest.approx(0.75)


def test_a_line_counts_once_and_blocks_by_their_steps() -> None:
    listening = StepListener()
    first = step_line(0, 4, stride=4, data=0)
    assert listening.follow(0, job(first, ranks=1)) is not None
    assert listening.follow(0, job(first, ranks=1)) is None
    second, third = step_line(0, 8, stride=4, data=0), step_line(0, 10, stride=2, data=60_000)
    times = listening.follow(0, job(first, second, third, ranks=1))
    assert times is not None
    assert times.shares[Category.DATA_WAIT] == pytest.approx(0.2)


def test_steps_are_split_once_half_of_those_who_tell_have_told_of_them() -> None:
    listening = StepListener()
    lines = [step_line(rank, 5 if rank else 6) for rank in range(3)]
    times = listening.follow(0, job(*lines, ranks=3))
    assert times is not None
    assert times.step == 5


def test_another_attempt_begins_from_nothing() -> None:
    listening = StepListener()
    listening.follow(0, job(step_line(0, 500), ranks=1))
    assert listening.follow(1, []) is None
    assert listening.newest is None
    again = listening.follow(1, job(step_line(0, 6), ranks=1))
    assert again is not None
    assert again.step == 6


def test_of_thousands_of_ranks_a_few_are_asked_and_the_first_is_among_them() -> None:
    lines = [step_line(rank, 5, data=0) for rank in range(1, 1024)]
    saver = step_line(0, 5, data=0, lost=100_000)
    times = StepListener().follow(0, job(saver, *lines, ranks=1024))
    assert times is not None
    assert times.shares[Category.SAVING] == pytest.approx(1.0)
    assert 1024 // RANKS_ASKED == 32


def test_what_is_no_line_is_passed_over() -> None:
    node = node_report("a", [rank_report(0, 9)])
    garbled = [NodeReport(**{**vars(node), "steps": ["", "0", "0 x", "0 7 nonsense"]})]
    assert StepListener().follow(0, garbled) is None
