"""Nobody is ever blamed on lines that are missing, late, twice there or without sense."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from bench.stragglers.scenario import Fault, Layout, Scenario
from bench.stragglers.simulated_job import SimulatedJob
from tests.unit.performance.stragglers.garbled import Garbled, blamed, remembered, waits_unseen

from holdfast_sidecar.performance.stragglers.judge import Judge
from holdfast_sidecar.records.findings import Moment
from holdfast_sidecar.records.steps import FIELDS, SlowCause, SlownessReport, StepLine, parse

Told = Callable[[StepLine], StepLine]


@pytest.mark.parametrize("seed", range(24))
def test_a_healthy_job_is_blamed_for_nothing_however_its_lines_come(seed: int) -> None:
    assert blamed(Garbled(seed).follow(150)) == []


def test_a_judge_remembers_no_more_of_a_long_job_than_of_a_short_one() -> None:
    job = Garbled(5, changes_leader=False)
    steps = enumerate(job.follow(1500))
    held = [remembered(job.judge) for number, _ in steps if number % 100 == 99]
    assert max(held[9:]) < 1.15 * max(held[4:9])


def follow(scenario: Scenario, steps: int, told: Told) -> list[SlownessReport]:
    job, judge = SimulatedJob(scenario), Judge()
    places, standings = job.places(), []
    for step, lines in enumerate(job.steps(steps), start=1):
        moment = Moment(float(step), 1e9 + step, "node0")
        standing = judge.follow(map(told, lines), places, {}, (), 0, moment)
        standings += [] if standing is None else [standing]
    return standings


@pytest.mark.parametrize("told", ["9" * 400, "-" + "9" * 400, "9" * 5000, "nan", "inf", "1e3", ""])
def test_a_line_with_a_number_that_no_page_can_hold_is_none(told: str) -> None:
    assert parse(" ".join([told, *["1"] * (FIELDS - 1)])) is None
    assert parse(" ".join([str((1 << 63) - 1), *["1"] * (FIELDS - 1)])) is not None


@pytest.mark.parametrize("seed", [4, 6, 7])
def test_who_can_tell_waiting_from_work_is_not_slower_than_who_cannot(seed: int) -> None:
    chance = random.Random(seed)

    def told(line: StepLine) -> StepLine:
        return waits_unseen(line) if chance.random() < 0.9 else line

    assert not any(one.slow for one in follow(Scenario(seed, Layout(8)), 200, told))


@pytest.mark.parametrize("since", [1, 41])
def test_who_alone_reports_the_size_of_the_work_was_not_given_more(since: int) -> None:
    def told(line: StepLine) -> StepLine:
        sizes = (65536, 1) if line.rank == 0 else (1024, 0)
        return line._replace(tokens=sizes[0], squares=0, work_reported=sizes[1])

    slow = Fault(SlowCause.CPU_QUOTA, (0,), 0.3, since)
    standings = follow(Scenario(7, Layout(8), tells_work=False, faults=(slow,)), 80, told)
    assert [one.cause for one in standings[-1].slow] == [SlowCause.CPU_QUOTA]
    assert not any(one.kind == "work" for one in standings[-1].what_ifs)


def test_times_without_sense_are_told_and_move_nobody_elses_figures() -> None:
    def told(line: StepLine) -> StepLine:
        jumps = line.step == 30 and line.rank in (4, 5, 6)
        return line._replace(forward=10**12) if jumps else line

    standings = follow(Scenario(3, Layout(4, 1, 2)), 60, told)
    assert not any(one.slow for one in standings)
    assert "ranks 4, 5 and 6 (role pp=1): their times make no sense; did a clock jump?" in {
        line for one in standings for line in one.unjudged
    }
