"""Running odd jobs: their plain twins once, with Holdfast often; and in turns, for their speed."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any

from bench.benchmark import Benchmark, NotRun, Sample, Task
from bench.harmless import faults
from bench.harmless.figures import COULD_NOT_RUN, SPEED, figures, is_decided, slowing
from bench.harmless.job import Job, Run
from bench.harmless.jobs import (
    JOBS,
    QUICK,
    SHORT,
    TIMED,
    TIMED_SAVING,
    TIMED_SHORT,
    TIMED_WAITING,
    WAITING,
)
from bench.harmless.outcome import Expected, Outcome, Timing, harms, not_disturbed

PAIRS = 5
MOST_PAIRS = 6
"""Some jobs' pairs differ by more than others': these are measured until it is decided, or the row
would take more than an hour."""


def tasks(quick: bool) -> list[Task]:
    """Every job, row by row; then the pairs, and faults."""
    if quick:
        chosen = [job for job in JOBS if job.name in QUICK]
        return [_task(job, 1) for job in chosen]
    odd = [_task(job, seed) for job in JOBS for seed in range(1, job.runs + 1)]
    timed = [
        Task(SPEED, f"{SPEED}/{job.name}", partial(compare_speed, job, has_goal=has_goal))
        for job, has_goal in timed_jobs().items()
    ]
    return [*odd, *timed, *faults.tasks()]


def _task(job: Job, seed: int) -> Task:
    return Task(job.row, f"{job.name}/{seed}", partial(measure, job, seed))


def measure(job: Job, seed: int) -> list[Sample]:
    """One run with Holdfast, held against the job's plain twin; the seed draws the disturbances."""
    sample: Sample = {"job": job.name, "seed": seed}
    try:
        expected = Expected(_twin(job), job.starts, job.starts_anew, job.may_refuse)
        with Run(job, seed, is_held=True) as run:
            held = run.measure()
    except NotRun as reason:
        return _told({**sample, COULD_NOT_RUN: str(reason)})
    found, missing = harms(expected, held), not_disturbed(expected, held)
    if found:
        sample |= {"harms": found, "notes": missing}
        sample |= {"tail": list(held.tail), "codes": dict(held.codes)}
    elif missing:
        sample[COULD_NOT_RUN] = "; ".join(missing)
    else:
        sample["harms"] = []
    return _told({**sample, "resumed": {rank: list(s) for rank, s in held.resumed.items()}})


def _told(sample: Sample) -> list[Sample]:
    for line in (*sample.get("harms", ()), sample.get(COULD_NOT_RUN, "")):
        if line:
            print(f"  {sample['job']}: {line}", file=sys.stderr, flush=True)
    return [sample]


def _twin(job: Job) -> dict[str, Any]:
    """Rank -> what it leaves without Holdfast. NotRun, and no second try, where it fails."""
    plain = dataclasses.replace(job, options=(), starts=1) if job.is_shared else job.undisturbed()
    found = _run_plain(plain)
    if isinstance(found, str):
        raise NotRun(found)
    return found


@cache
def _run_plain(job: Job) -> dict[str, Any] | str:
    try:
        with Run(job, 1, is_held=False) as run:
            outcome = run.measure()
        _must_be_whole(outcome)
    except NotRun as reason:
        return f"without Holdfast: {reason}"
    return dict(outcome.results)


def _must_be_whole(outcome: Outcome) -> None:
    if outcome.notes:
        raise NotRun("; ".join(outcome.notes))
    if any(outcome.codes.values()) or None in outcome.codes.values():
        tail = " | ".join(outcome.tail[-3:])
        raise NotRun(f"ended with {dict(outcome.codes)}: {tail}")


def timed_jobs() -> dict[Job, bool]:
    """Those whose time is compared: a fixed amount of work, whatever else they do -> whether what
    they show is held against the goal."""
    by_name = {job.name: job for job in JOBS}
    busy = [_timed(by_name[name], s, environment) for name, (s, environment) in TIMED.items()]
    waiting = [_timed(by_name[name], 3.0, WAITING, ", waiting") for name in TIMED_WAITING]
    saves = ("--checkpoint-every", EVERY)
    saving = [
        _timed(by_name[name], *TIMED[name], f", saving every {EVERY}", saves)
        for name in TIMED_SAVING
    ]
    short = [_timed(by_name[name], 3.0, SHORT, ", short steps") for name in TIMED_SHORT]
    return {**dict.fromkeys((*busy, *waiting), True), **dict.fromkeys((*saving, *short), False)}


EVERY = "100steps"


def _timed(
    job: Job,
    seconds: float,
    environment: Mapping[str, str],
    how: str = "",
    saving: Sequence[str] = (),
) -> Job:
    may_save = job.script[0] == "training.py"
    return dataclasses.replace(
        job,
        name=job.name + how,
        environment=tuple({**dict(job.environment), **environment}.items()),
        odd_s=seconds,
        options=("--checkpoint-dir", "{checkpoints}", *saving) if may_save else (),
    )


def compare_speed(
    job: Job, measure_one: Callable[[Job, bool], Timing] | None = None, *, has_goal: bool = True
) -> list[Sample]:
    """Pairs, who is first by turns, until it is decided whether the job is slowed."""
    timing_of = measure_one or _time
    samples: list[Sample] = []
    while len(samples) < PAIRS or (len(samples) < MOST_PAIRS and not is_decided(slowing(samples))):
        pair = len(samples)
        first, second = (False, True) if pair % 2 else (True, False)
        found = {first: timing_of(job, first)}
        found[second] = timing_of(job, second)
        of_job = {"job": job.name, "has_goal": has_goal, "pair": pair}
        samples.append({**of_job, **_told_of(found[True], found[False])})
    return samples


def _told_of(held: Timing, plain: Timing) -> Sample:
    return {
        "held_s": held.seconds,
        "plain_s": plain.seconds,
        "held_first_s": held.first_s,
        "plain_first_s": plain.first_s,
        "held_pieces": held.pieces,
        "plain_pieces": plain.pieces,
    }


def _time(job: Job, is_held: bool) -> Timing:
    with Run(job, 1, is_held=is_held) as run:
        outcome = run.measure()
    _must_be_whole(outcome)
    if not outcome.timing.pieces_s:
        raise NotRun("no rank said how long a piece of work took")
    return outcome.timing


def rows(jobs: Sequence[Job]) -> tuple[str, ...]:
    """What can be measured in one sitting each."""
    return (*dict.fromkeys(job.row for job in jobs), SPEED, faults.ROW)


BENCHMARK = Benchmark(name="harmless", rows=rows(JOBS), tasks=tasks, figures=figures)
