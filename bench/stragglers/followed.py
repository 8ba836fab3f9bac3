"""A simulated job, followed as the leader follows a real one: who was told slow, and how soon."""

from __future__ import annotations

from dataclasses import dataclass

from bench.benchmark import Sample
from bench.stragglers.scenario import Scenario
from bench.stragglers.simulated_job import SimulatedJob
from holdfast_sidecar.performance.stragglers.frames import FrameAssembler
from holdfast_sidecar.performance.stragglers.judge import Detector

Z = 6.9
"""Sum of the quantiles of one false alarm in a million and two misses in a hundred, and some; as
the goal has it: n >= (6.9 sigma / d)^2 steps are needed to tell."""


@dataclass(frozen=True)
class Followed:
    """What came of one job."""

    first_told: dict[int, int]
    """Rank -> step with which it was first told slow."""
    false_steps: dict[int, int]
    """Rank that was told slow while it was well -> first such step."""
    slowdowns: dict[int, float]
    """Rank -> what was told of it last."""


def follow(scenario: Scenario, steps: int) -> Followed:
    """So many steps, of a second each."""
    job, frames, detector = SimulatedJob(scenario), FrameAssembler(), Detector()
    places = job.places()
    followed = Followed({}, {}, {})
    for lines in job.steps(steps):
        for frame in frames.take(lines, {line.rank for line in lines}):
            for excess in detector.follow(frame, places, float(frame.step)):
                followed.slowdowns[excess.rank] = excess.slowdown
                # It takes some steps to be sure that somebody is well again.
                if any(job.slow(step).get(excess.rank) for step in _lately(frame.step)):
                    followed.first_told.setdefault(excess.rank, frame.step)
                else:
                    followed.false_steps.setdefault(excess.rank, frame.step)
    return followed


def _lately(step: int) -> tuple[int, int]:
    return (step, step - 10)


def needed_steps(sigma: float, slowdown: float) -> float:
    """How many steps the statistics need."""
    return float((Z * sigma / slowdown) ** 2)


def of_faults(scenario: Scenario, steps: int) -> Sample:
    """One job with faults, as a sample."""
    followed = follow(scenario, steps)
    ranks = []
    for fault in scenario.faults:
        for rank in fault.ranks:
            told = followed.first_told.get(rank)
            ranks.append(
                {
                    "rank": rank,
                    "cause": fault.cause.value,
                    "slowdown": fault.slowdown,
                    "needed": round(needed_steps(scenario.sigma, fault.slowdown), 2),
                    "found_after": None if told is None else told - fault.since + 1,
                    "told": followed.slowdowns.get(rank),
                }
            )
    return {
        **outline(scenario),
        "slow": ranks,
        "false": sorted(followed.false_steps.items()),
        "steps": steps,
    }


def of_health(scenario: Scenario, steps: int) -> Sample:
    """One healthy job, as a sample."""
    followed = follow(scenario, steps)
    return {**outline(scenario), "steps": steps, "false": sorted(followed.false_steps.items())}


def outline(scenario: Scenario) -> Sample:
    """What a job was drawn as."""
    layout = scenario.layout
    return {
        "seed": scenario.seed,
        "layout": layout.name,
        "ranks": layout.ranks,
        "role": layout.dp * layout.tp,
        "sigma": round(scenario.sigma, 4),
        "tail": scenario.tail,
        "memory": scenario.memory,
        "lengths": scenario.lengths,
    }
