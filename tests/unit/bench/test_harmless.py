"""What counts as harm, what counts as a run, and what `bench harmless` plans."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import cycle
from typing import Any

import pytest
from bench.benchmark import NotRun, Sample
from bench.figures import NOT_RUN, Figure
from bench.harmless import faults, measuring
from bench.harmless.figures import COULD_NOT_RUN, figures, slowing
from bench.harmless.job import Job, Run
from bench.harmless.jobs import JOBS, QUICK, TIMED, TIMED_SAVING, TIMED_SHORT, TIMED_WAITING
from bench.harmless.measuring import BENCHMARK, compare_speed, measure, tasks, timed_jobs
from bench.harmless.outcome import Expected, Outcome, Timing, harms, not_disturbed

EXPECTED = Expected({"0": {"weights": "w"}, "1": {"weights": "w"}})
WELL = Outcome(
    codes={"a": 0},
    starts={"0": 1, "1": 1},
    results={"0": {"weights": "w"}, "1": {"weights": "w"}},
    timing=Timing(1.0),
    resumed={"0": [0], "1": [0]},
    tail=["a line", "and another"],
)
KILLED = replace(WELL, starts={"0": 2, "1": 2}, resumed={"0": [0, 21], "1": [0, 21]})
REFUSED = replace(WELL, codes={"a": 2}, starts={"0": 0}, results={}, tail=["one line"])


def test_a_job_that_is_as_without_holdfast_is_not_harmed() -> None:
    assert harms(EXPECTED, WELL) == not_disturbed(EXPECTED, WELL) == []
    killed = replace(EXPECTED, starts=2)
    assert harms(killed, KILLED) == not_disturbed(killed, KILLED) == []


@pytest.mark.parametrize(
    ("held", "harm"),
    [
        (replace(WELL, codes={"a": 1}), "exit code {'a': 1} in place of 0"),
        (replace(WELL, codes={"a": 0, "b": None}), "never ended: b"),
        (replace(WELL, starts={"0": 2, "1": 1}), "started again: {'0': 2}"),
        (replace(WELL, results={"0": {"weights": "w"}}), "another result on rank 1"),
        (replace(WELL, lost=["step-1000/x.pt"]), "not as it was: step-1000/x.pt"),
        (replace(WELL, seen=["the second launch hung"]), "the second launch hung"),
    ],
)
def test_each_way_to_be_harmed_is_told(held: Outcome, harm: str) -> None:
    assert harms(EXPECTED, held) == [harm]


def test_a_killed_job_must_go_on_where_it_was_unless_it_is_known_to_start_anew() -> None:
    lost = replace(KILLED, resumed={"0": [0, 21], "1": [0, 0]})
    killed = replace(EXPECTED, starts=2)
    assert harms(killed, lost) == ["started anew after a kill: rank 1"]
    assert harms(replace(killed, starts_anew=True), lost) == []


def test_a_refusal_in_one_line_before_anything_started_is_harmless_where_it_is_allowed() -> None:
    allowed = replace(EXPECTED, may_refuse=True)
    assert harms(allowed, REFUSED) == not_disturbed(allowed, REFUSED) == []
    assert harms(EXPECTED, REFUSED)
    assert harms(allowed, replace(REFUSED, tail=["two", "lines"]))
    assert harms(allowed, replace(REFUSED, starts={"0": 1}))
    assert harms(allowed, replace(REFUSED, lost=["thesis.txt"])) == ["not as it was: thesis.txt"]


def test_a_disturbance_that_did_not_happen_makes_no_run() -> None:
    noted = replace(WELL, notes=["gdb ended with 1"])
    assert not_disturbed(EXPECTED, noted) == ["gdb ended with 1"]
    assert not_disturbed(replace(EXPECTED, starts=2), WELL) == [
        "started {'0': 1, '1': 1} in place of 2 times"
    ]


def odd(job: str, seed: int = 1, *, mode: str = "full", **what: Any) -> Sample:
    return {"row": "work", "mode": mode, "job": job, "seed": seed, **(what or {"harms": []})}


def pairs(job: str, *ratios: float, has_goal: bool = True) -> list[Sample]:
    origin = {"row": "speed", "mode": "full", "job": job, "has_goal": has_goal}
    return [
        {
            **origin,
            "pair": i,
            "held_pieces": 1000 * r,
            "plain_pieces": 1000.0,
            "held_first_s": 1.25,
            "plain_first_s": 1.0,
        }
        for i, r in enumerate(ratios)
    ]


def met(found: list[Figure]) -> dict[str, Any]:
    return {figure.name: figure.met for figure in found if figure.goal}


def missed(samples: list[Sample]) -> list[str]:
    return [name for name, is_met in met(figures(samples)).items() if is_met is False]


ENOUGH = [odd(f"job {number % 50}", number) for number in range(200)]
FAST = [pair for number in range(12) for pair in pairs(f"job {number}", 1.0, 1.01, 0.99, 1.0, 1.02)]


def test_without_samples_nothing_is_met_nor_missed() -> None:
    assert set(met(figures([])).values()) == {NOT_RUN}


def test_enough_harmless_and_fast_runs_meet_every_goal() -> None:
    assert missed(ENOUGH + FAST) == []
    once = next(one for one in figures(FAST) if one.name.startswith("first steps"))
    assert once.value == 0.25


def test_jobs_that_do_not_run_as_by_default_are_told_and_count_for_no_goal() -> None:
    often = pairs("often saved", 1.2, 1.2, 1.2, 1.2, 1.2, has_goal=False)
    found = figures(ENOUGH + FAST + often)
    assert missed(ENOUGH + FAST + often) == []
    told = next(one for one in found if one.name == "slower: often saved, upper bound")
    assert told.value == pytest.approx(0.2)
    assert next(one.value for one in found if one.name == "jobs compared in speed") == 12


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        ([*ENOUGH[:199], *FAST], ["runs with Holdfast"]),
        (
            [*ENOUGH, odd("bad", harms=["ended"]), *FAST],
            ["jobs harmed", "work: runs harmed of 201"],
        ),
        (
            [*ENOUGH, odd("never", 1, **{COULD_NOT_RUN: "no gdb"}), *FAST],
            ["jobs that could not be run"],
        ),
        ([*ENOUGH, *FAST[:55]], ["jobs compared in speed"]),
        ([*ENOUGH, *FAST, *pairs("slow", *[1.05] * 5)], ["jobs slowed"]),
        (
            [*ENOUGH, *FAST, *(p for i in range(4) for p in pairs(f"unsure {i}", 0.9, 1.0, 1.1))],
            ["jobs whose slowing is undecided"],
        ),
    ],
)
def test_each_goal_can_be_missed(samples: list[Sample], expected: list[str]) -> None:
    assert missed(samples) == expected


def test_a_run_that_could_not_be_made_does_not_count_nor_does_its_job_while_others_ran() -> None:
    found = figures([*ENOUGH, odd("job 1", 201, **{COULD_NOT_RUN: "ended before"})])
    by_name = {figure.name: figure.value for figure in found}
    assert by_name["runs with Holdfast"] == 200
    assert by_name["runs that could not be made"] == 1
    assert by_name["jobs that could not be run"] == 0


def test_a_quick_run_has_no_goal_for_how_many_there_are() -> None:
    goals = {figure.name: figure.goal for figure in figures([odd("one", mode="quick")])}
    assert goals["runs with Holdfast"] is goals["odd jobs"] is None
    assert goals["jobs harmed"] == "= 0"


def test_figures_of_faults_are_those_of_their_own_benchmarks() -> None:
    hang: Sample = {"row": "faults", "of": "hangs", "contestant": "Holdfast", "kind": "stopped"}
    hang |= {"is_provable": True, "is_right": True, "step_s": 0.1}
    soon, late = {"declared_s": 1.0, "acted_s": 1.1}, {"declared_s": 9.0, "acted_s": 9.1}
    assert met(faults.figures([{**hang, **soon}]))["faults: hangs: told within 3 steps + 1 s"]
    found = met(faults.figures([{**hang, **late}]))
    assert found["faults: hangs: told within 3 steps + 1 s"] is False
    assert found["faults: node lost: declared, p99"] == NOT_RUN


def test_every_task_has_a_key_of_its_own_and_a_row_that_can_be_asked_for() -> None:
    for quick in (False, True):
        planned = tasks(quick)
        assert len({task.key for task in planned}) == len(planned)
        assert {task.row for task in planned} <= set(BENCHMARK.rows)
    assert {task.row for task in tasks(False)} == set(BENCHMARK.rows)
    assert len({job.name for job in JOBS}) == len(JOBS)


def test_a_full_run_has_enough_jobs_and_runs_and_a_quick_one_some_of_them() -> None:
    assert len(JOBS) >= 40
    assert 205 <= sum(job.runs for job in JOBS) <= 240
    quick = Counter(task.row for task in tasks(True))
    assert sum(quick.values()) == len(QUICK) == 8
    assert not {"speed", "faults", "real time"} & set(quick)


def test_twelve_jobs_are_timed_whose_work_is_fixed() -> None:
    timed = timed_jobs()
    waiting = [f"{name}, waiting" for name in TIMED_WAITING]
    saving = [f"{name}, saving every 100steps" for name in TIMED_SAVING]
    short = [f"{name}, short steps" for name in TIMED_SHORT]
    assert [job.name for job in timed] == [*TIMED, *waiting, *saving, *short]
    assert [job.name for job, has_goal in timed.items() if has_goal] == [*TIMED, *waiting]
    assert len(TIMED) == 12
    often = [job.name for job in timed if "--checkpoint-every" in job.options]
    assert often == saving, "the others are run as they are by default"
    for job in timed:
        assert dict(job.environment)["ODD_TIMED"] == "1"
        assert "7steps" not in job.options


def test_jobs_that_do_the_same_work_share_a_plain_twin() -> None:
    redis = [job.undisturbed() for job in JOBS if job.row == "redis"]
    assert len({(one.nodes, one.environment) for one in redis}) == len(set(redis)) == 3
    by_name = {job.name: job for job in JOBS}
    assert by_name["textbook"].undisturbed() == by_name["textbook, a rank killed"].undisturbed()


def test_pairs_alternate_and_end_as_soon_as_it_is_decided() -> None:
    order: list[bool] = []

    def steady(job: Job, is_held: bool) -> Timing:
        order.append(is_held)
        return Timing(1.01 if is_held else 1.0, [0.001, 0.001])

    assert len(compare_speed(next(iter(timed_jobs())), steady)) == 5
    assert order[:4] == [True, False, False, True]
    held_s = cycle((0.9, 1.1))
    unsteady = compare_speed(
        next(iter(timed_jobs())), lambda job, held: Timing(next(held_s) if held else 1.0, [0.001])
    )
    assert len(unsteady) == 6


def test_a_pair_in_which_the_machine_changed_its_pace_is_held_against_what_it_could_do() -> None:
    def throttled(job: Job, is_held: bool) -> Timing:
        return Timing(2.04, [0.0019, 0.0021]) if is_held else Timing(1.0, [0.001, 0.001])

    samples = compare_speed(next(iter(timed_jobs())), throttled)
    assert slowing(samples).middle == pytest.approx(0.02)
    assert (samples[0]["held_s"], samples[0]["plain_s"]) == (2.04, 1.0)


def test_a_job_whose_plain_twin_fails_could_not_be_run_and_its_twin_runs_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried: list[bool] = []

    def fails(run: Run) -> Outcome:
        tried.append(run.is_held)
        raise NotRun("gdb is not installed")

    monkeypatch.setattr(Run, "measure", fails)
    measuring._run_plain.cache_clear()
    job = Job("a job of this test", "work", ("working.py", "nothing_odd"))
    for seed in (1, 2):
        (sample,) = measure(job, seed)
        assert sample[COULD_NOT_RUN] == "without Holdfast: gdb is not installed"
        assert "harms" not in sample
    assert tried == [False]


@pytest.mark.parametrize(
    ("held", "counts"),
    [
        (replace(WELL, notes=["py-spy: refused"]), COULD_NOT_RUN),
        (replace(WELL, notes=["never made 5 steps"], codes={"a": 65}), "harms"),
        (WELL, "harms"),
    ],
)
def test_harm_counts_whatever_was_done_to_a_job_and_a_run_without_effect_does_not(
    held: Outcome, counts: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Run, "measure", lambda run: held if run.is_held else WELL)
    measuring._run_plain.cache_clear()
    job = Job("another job of this test", "work", ("working.py", "nothing_odd"))
    (sample,) = measure(job, 1)
    assert {"harms", COULD_NOT_RUN} & set(sample) == {counts}
    assert bool(sample.get("harms")) == bool(held.codes["a"])
