"""A simulated job, judged as the leader judges a real one, step after step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bench.stragglers.simulated_job import SimulatedJob
from holdfast_sidecar.performance.stragglers.judge import Judge
from holdfast_sidecar.records.findings import Finding, Moment
from holdfast_sidecar.records.steps import SlownessReport


def standings(
    job: SimulatedJob, steps: int, findings: Sequence[Finding] = ()
) -> Iterator[SlownessReport]:
    """How it stands after each of so many steps, once anything is known of it."""
    judge, places = Judge(), job.places()
    for step, lines in enumerate(job.steps(steps), start=1):
        now_s = step * job.scenario.step_us / 1e6
        moment = Moment(now_s, 1.7e9 + now_s, "node0")
        standing = judge.follow(lines, places, {}, findings, 0, moment)
        if standing is not None:
            yield standing
