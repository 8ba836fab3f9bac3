"""The figures of harmlessness. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from bench.benchmark import Sample
from bench.figures import Figure, at_least, at_most, exactly, middle
from bench.harmless import faults
from bench.interval import Interval, median_interval
from bench.results import FULL

SPEED = "speed"
COULD_NOT_RUN = "could_not_run"
"""Of a sample: why there was no run, or none in which what was to be done was done."""

LEAST_JOBS = 40
LEAST_RUNS = 200
LEAST_TIMED = 12
MOST_SLOWER = 0.03
MOST_UNDECIDED = 3


def figures(samples: Sequence[Sample]) -> list[Figure]:
    """Jobs run and harmed, by row and in all; jobs slowed; faults that are real."""
    odd = [sample for sample in samples if "seed" in sample]
    runs = [sample for sample in odd if "harms" in sample]
    harmed = {sample["job"] for sample in runs if sample["harms"]}
    never = {sample["job"] for sample in odd} - {sample["job"] for sample in runs}
    missing = len(odd) - len(runs)
    found = [
        *_counts(odd, runs),
        exactly("jobs harmed", "jobs", len(harmed) if runs else None, 0),
        exactly("jobs that could not be run", "jobs", len(never) if odd else None, 0),
        Figure("runs that could not be made", missing if odd else None, "runs"),
    ]
    for row in dict.fromkeys(sample["row"] for sample in runs):
        of_row = [sample for sample in runs if sample["row"] == row]
        count = sum(bool(sample["harms"]) for sample in of_row)
        found.append(exactly(f"{row}: runs harmed of {len(of_row)}", "runs", count, 0))
    speed = _speed([sample for sample in samples if sample["row"] == SPEED])
    return [*found, *speed, *faults.figures(samples)]


def _counts(odd: Sequence[Sample], runs: Sequence[Sample]) -> list[Figure]:
    """How many there are is a goal of full runs alone."""
    jobs = {sample["job"] for sample in runs}
    if all(sample["mode"] == FULL for sample in odd):
        return [
            at_least("odd jobs", "jobs", len(jobs) or None, LEAST_JOBS),
            at_least("runs with Holdfast", "runs", len(runs) or None, LEAST_RUNS),
        ]
    return [
        Figure("odd jobs", len(jobs), "jobs"),
        Figure("runs with Holdfast", len(runs), "runs"),
    ]


def _speed(samples: Sequence[Sample]) -> list[Figure]:
    found, compared, slowed, undecided = [], 0, 0, 0
    for job in dict.fromkeys(sample["job"] for sample in samples):
        pairs = [sample for sample in samples if sample["job"] == job]
        interval = slowing(pairs)
        if pairs[0]["has_goal"]:
            compared += 1
            slowed += interval.lower > MOST_SLOWER
            undecided += not is_decided(interval)
        found.append(
            Figure(f"slower: {job}, upper bound", interval.upper, "share", spread=_more(pairs))
        )
    once_s = [pair["held_first_s"] - pair["plain_first_s"] for pair in samples]
    is_known = compared > 0
    return [
        at_least("jobs compared in speed", "jobs", compared or None, LEAST_TIMED),
        exactly("jobs slowed", "jobs", slowed if is_known else None, 0),
        at_most(
            "jobs whose slowing is undecided",
            "jobs",
            undecided if is_known else None,
            MOST_UNDECIDED,
        ),
        middle("first steps take longer by, once per launch", "s", once_s),
        *found,
    ]


def slowing(pairs: Sequence[Sample]) -> Interval:
    """By which share a job is slower with Holdfast."""
    return median_interval(_more(pairs))


def is_decided(interval: Interval) -> bool:
    """Whether all of it lies on one side of what is allowed."""
    return interval.upper <= MOST_SLOWER or interval.lower > MOST_SLOWER


def _more(pairs: Sequence[Sample]) -> tuple[float, ...]:
    return tuple(pair["held_pieces"] / pair["plain_pieces"] - 1 for pair in pairs)
