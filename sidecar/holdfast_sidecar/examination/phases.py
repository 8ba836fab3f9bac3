"""The lowest rungs of the ladder: what is learnt of each phase, for the jobs that run here."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from holdfast import page
from holdfast_sidecar.config.paths import find
from holdfast_sidecar.config.settings import Settings, StallSettings
from holdfast_sidecar.examination.check import FAIL, OK, Check
from holdfast_sidecar.ranks.history import Pace
from holdfast_sidecar.ranks.page import Pages
from holdfast_sidecar.ranks.stall import MEASURED, STEPS_TO_TRUST, USUAL_SHARE


@dataclass(frozen=True)
class RunningJob:
    """Living ranks of one node, each with what its latest steps took."""

    job: str
    node: str
    paces: list[Pace] = field(default_factory=list)


def check_phases(settings: Settings) -> list[Check]:
    """What holds for every job, then each job that runs here."""
    return [describe_rule(settings.stall), *judge_jobs(read_jobs(settings), settings.stall)]


def describe_rule(stall: StallSettings) -> Check:
    """From what the limits are made."""
    if stall.limit_s:
        line = f"a phase's silence is declared after stall.limit_s = {stall.limit_s:g} s"
    else:
        line = (
            f"a phase's silence is declared after {stall.factor:g} times what "
            f"{USUAL_SHARE:.0%} of its steps took, at least {stall.floor_s:g} s; "
            f"{stall.first_step_s:g} s before the first step"
        )
    return Check("timeouts", OK, line)


def judge_jobs(jobs: Iterable[RunningJob], stall: StallSettings) -> Iterator[Check]:
    """One line for each job whose steps tell something."""
    for job in jobs:
        known = [pace for pace in job.paces if pace.steps_learnt >= STEPS_TO_TRUST]
        limits = {
            phase.name.lower(): max(limit_s(pace, part, stall) for pace in known)
            for phase, part in MEASURED.items()
            if known
        }
        if limits:
            yield _judge(job, limits, stall)


def limit_s(pace: Pace, part: str, stall: StallSettings) -> float:
    """When the silence of this part of a step is declared, seconds."""
    usual_s = pace.parts[part].quantile_s(USUAL_SHARE)
    return stall.limit_s or max(stall.floor_s, stall.factor * usual_s)


def read_jobs(settings: Settings) -> list[RunningJob]:
    """The jobs of this user whose ranks live here, from their pages."""
    root = Path(settings.paths.shm_dir) / f"holdfast-{os.getuid()}"
    found = (_read_job(directory) for directory in find(root, "*/*"))
    return [job for job in found if job.paces]


def _read_job(directory: Path) -> RunningJob:
    pages = Pages(directory)
    try:
        contents = [held.read() for held in pages.refresh() if not held.is_gone()]
    finally:
        pages.close()
    records = [[record for _, record in page.parse_records(one, 0)] for one in contents]
    return RunningJob(directory.parent.name, directory.name, [Pace().after(r) for r in records])


def _judge(job: RunningJob, limits: dict[str, float], stall: StallSettings) -> Check:
    told = ", ".join(f"{limit:.3g} s in {phase}" for phase, limit in limits.items())
    line = f"job {job.job} on {job.node}: declared after {told}"
    longest = max(limits.values())
    if not stall.act_after_s or longest < stall.act_after_s:
        return Check("timeouts", OK, line)
    why = "silence would be acted on the moment it is declared: raise it"
    act = f"stall.act_after_s = {stall.act_after_s:g} s"
    return Check("timeouts", FAIL, f"{line}; {act} is not above that: {why}")
