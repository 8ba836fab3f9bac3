"""A simulated job, followed as the leader would."""

from __future__ import annotations

from collections.abc import Callable

from bench.stragglers.scenario import Layout, Scenario
from bench.stragglers.simulated_job import SimulatedJob

from holdfast_sidecar.performance.stragglers.frame import Excess
from holdfast_sidecar.performance.stragglers.frames import FrameAssembler
from holdfast_sidecar.performance.stragglers.judge import Detector

Told = dict[int, tuple[Excess, ...]]

EIGHT = Layout(dp=8)


def follow(
    scenario: Scenario, steps: int, each: Callable[[int, Detector], None] | None = None
) -> Told:
    """Step -> who was told slow at it; a step takes a second."""
    job, frames, detector = SimulatedJob(scenario), FrameAssembler(), Detector()
    places = job.places()
    told: Told = {}
    for lines in job.steps(steps):
        for frame in frames.take(lines, {line.rank for line in lines}):
            told[frame.step] = detector.follow(frame, places, float(frame.step))
            if each is not None:
                each(frame.step, detector)
    return told


def blamed(told: Told) -> set[int]:
    """Whoever was ever told slow."""
    return {excess.rank for excesses in told.values() for excess in excesses}
