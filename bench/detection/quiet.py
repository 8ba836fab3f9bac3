"""Row `quiet`: jobs that are well and are watched for a long time, a real one and a simulated one.

A false alarm is a hang that is told, or anything sure enough to end a rank for.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.unit.ranks.simulated_training import Habits, Training, watch

from bench.benchmark import Sample, Task
from bench.detection.hang_kinds import PROGRAMS
from bench.detection.hang_names import QUIET, REAL, SIMULATED
from bench.launch import contestants
from bench.launch.contestants import FIRST_NODE, Scenario
from bench.launch.job import Job, NotReached
from bench.launch.names import HOLDFAST
from holdfast_sidecar.config.settings import StallSettings
from holdfast_sidecar.records.codec import decode
from holdfast_sidecar.records.findings import Finding, Kind
from holdfast_sidecar.records.plan import Incident
from holdfast_sidecar.records.reports import NodeReport
from holdfast_sidecar.store.protocol import Keys, Section

RUN_S = 1860.0
QUICK_S = 45.0
RANKS = 2
SEEDS = 5
STEPS = 100_000

LOOK_S = 0.2
END_LIMIT_S = 120.0


@dataclass(frozen=True)
class HealthyScenario(Scenario):
    """A job of this many seconds."""

    seconds: float = 0.0
    habits: Mapping[str, float] | None = None

    def training(self) -> list[str]:
        """The program and its options."""
        options = [f"--{name}={value:g}" for name, value in (self.habits or {}).items()]
        program = str(PROGRAMS / "healthy.py")
        return [program, f"--directory={self.directory}", f"--seconds={self.seconds}", *options]


def tasks(quick: bool) -> list[Task]:
    """The real job, and simulated ones by seed."""
    seeds = range(1) if quick else range(SEEDS)
    habits = {"every": 40, "upload-s": 8, "stall-s": 6} if quick else {}
    return [
        Task(QUIET, f"{QUIET}/{REAL}", partial(run, QUICK_S if quick else RUN_S, habits)),
        *(Task(QUIET, f"{QUIET}/{SIMULATED}/{seed}", partial(simulate, seed)) for seed in seeds),
    ]


def run(seconds: float, habits: Mapping[str, float]) -> list[Sample]:
    """A real job, watched through what its node reports."""
    scenario = HealthyScenario(
        run="",
        directory=Path(),
        optimizer="sgd",
        min_nodes=1,
        max_nodes=1,
        ranks_per_node=RANKS,
        seconds=seconds,
        habits=habits,
    )
    with Job(contestants.HOLDFAST, scenario) as job:
        job.start(FIRST_NODE)
        alarms, told = _watch(job, seconds + END_LIMIT_S)
        exit_code = job.launched[FIRST_NODE].process.poll()
        events = job.events()
    steps = [event for event in events if event.name == "step"]
    if exit_code != 0 or not steps:
        raise NotReached(f"the healthy job ended with {exit_code} after {len(steps)} steps")
    return [
        {
            "contestant": HOLDFAST,
            "job": REAL,
            "seconds": (steps[-1].at_ns - steps[0].at_ns) / 1e9,
            "steps": max(event.step for event in steps),
            "habits": sum(event.name == "habit" for event in events),
            "alarms": alarms,
            "told": told,
        }
    ]


def simulate(seed: int) -> list[Sample]:
    """The same on a virtual clock, by the detectors alone."""
    training = Training(seed, Habits())
    found = [finding for _, finding in watch(training, STEPS, StallSettings())]
    alarms = [_in_words(finding) for finding in found if is_alarm(finding)]
    told = sorted({finding.kind.value for finding in found})
    sample: Sample = {"contestant": HOLDFAST, "job": SIMULATED, "steps": training.step}
    return [{**sample, "alarms": alarms, "told": told}]


def is_alarm(finding: Finding) -> bool:
    """Whether a healthy job must not be told this of itself."""
    return finding.acts or finding.kind in (Kind.HANG, Kind.CRASH)


def _watch(job: Job, limit_s: float) -> tuple[list[str], list[str]]:
    """Alarms, and kinds of all findings, until the launcher ends."""
    assert job.server is not None
    keys, client = Keys(job.scenario.run), job.server.client()
    alarms: set[str] = set()
    told: set[str] = set()
    until_s = time.monotonic() + limit_s
    while job.launched[FIRST_NODE].process.poll() is None and time.monotonic() < until_s:
        text = client.hget(keys.section(Section.NODES), FIRST_NODE)
        report = None if text is None else decode(NodeReport, str(text))
        for finding in [] if report is None else report.findings:
            told.add(finding.kind.value)
            if is_alarm(finding):
                alarms.add(_in_words(finding))
        for text in client.hvals(keys.section(Section.INCIDENTS)):
            incident = decode(Incident, str(text))
            if incident is not None:
                alarms.add(f"incident: {incident.cause} of ranks {incident.culprit_ranks}")
        time.sleep(LOOK_S)
    return sorted(alarms), sorted(told)


def _in_words(finding: Finding) -> str:
    return f"{finding.kind.value} of ranks {finding.ranks}: {'; '.join(finding.evidence)}"
