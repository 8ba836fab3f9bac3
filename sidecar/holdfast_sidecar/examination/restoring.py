"""Whether the state of the jobs that ran here last could be given back at a resume."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from holdfast_sidecar.config.paths import find
from holdfast_sidecar.examination.check import OK, WARN, Check
from holdfast_sidecar.export.job_record import JobRecord, read_record

WHAT = "resumes"


def check_restoring(root: Path) -> list[Check]:
    """Look at what the sidecars here kept of their jobs, below the root of all jobs."""
    found = ((state.name, read_record(state)) for state in sorted(find(root, "*/")))
    return list(judge_restoring((job, kept[0]) for job, kept in found if kept is not None))


def judge_restoring(jobs: Iterable[tuple[str, JobRecord]]) -> Iterator[Check]:
    """A line for each thing that a job could not be resumed for; one line when there is none."""
    doubts = [(job, reason) for job, record in jobs for reason in record.unrestorable]
    for job, reason in doubts:
        yield Check(WHAT, WARN, f"job {job} could not be resumed: {reason}")
    if not doubts:
        yield Check(WHAT, OK, "no job that ran here found state that it could not restore")
