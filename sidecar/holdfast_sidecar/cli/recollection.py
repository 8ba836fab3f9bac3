"""A job's incidents from its store, and from what this machine kept where that is gone."""

from __future__ import annotations

import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from holdfast_sidecar.bad_input import BadInput
from holdfast_sidecar.chronicle import newest_job, read_incidents
from holdfast_sidecar.cli import store_away
from holdfast_sidecar.cli.finding_the_job import FoundJob, NoSuchJob, find_job, find_names
from holdfast_sidecar.configuration import Effective
from holdfast_sidecar.coordination.store import View
from holdfast_sidecar.decisions.cluster import parse_cluster
from holdfast_sidecar.job_record import newest_ended, newest_record, read_record
from holdfast_sidecar.listing import find
from holdfast_sidecar.places import state_root
from holdfast_sidecar.records.incident import Incident
from holdfast_sidecar.records.plan import TERMINAL, Plan
from holdfast_sidecar.standing import exists, incidents
from holdfast_sidecar.story import Story


@dataclass(frozen=True)
class Recollection:
    """A job's incidents, oldest first; `remark` says when they are this machine's memory only."""

    job: str
    state: Path
    incidents: list[Incident]
    remark: str = ""
    ending: str = ""
    """How the job ended, after its name; empty: it has not, as far as is known."""

    @property
    def without_incident(self) -> str:
        """What is said of a job that had none."""
        if self.ending:
            return f"job {self.job} {self.ending}; it had no incident"
        return f"job {self.job}: no incident so far"


def recall(effective: Effective, job: str | None) -> Recollection:
    """A job's incidents from its store; from this machine's disk where that is gone."""
    try:
        found = find_job(effective, job)
        view = _read(found)
        kept = read_incidents(found.state)
        told = with_forgotten(incidents(view), kept, parse_cluster(view).plan)
        return Recollection(found.job, found.state, told, ending=_ending(view))
    except (NoSuchJob, store_away.CutOff) as error:
        root = state_root(effective.settings.paths)
        state = newest_job(root) if job is None else root / job
        kept = [] if state is None else read_incidents(state)
        if state is not None and kept:
            note = f"{error.format_message()}; this is what is kept here of job {state.name!r}"
            return Recollection(state.name, state, kept, note)
        if isinstance(error, NoSuchJob) and (ended := _recall_ended(root, job)) is not None:
            return ended
        raise


def _recall_ended(root: Path, job: str | None) -> Recollection | None:
    """A job that is gone and had no incident."""
    state = newest_ended(root) if job is None else root / job
    record = None if state is None else read_record(state)
    if state is None or record is None:
        return None
    return Recollection(state.name, state, [], ending=record[0].ending)


def _ending(view: View) -> str:
    record = newest_record(view.sections, "", None)
    return record.ending if record is not None and record.state in TERMINAL else ""


def with_forgotten(
    told: Sequence[Incident], kept: Sequence[Incident], plan: Plan | None
) -> list[Incident]:
    """What the store tells, and what of this run is only on this machine: the store was emptied."""
    began_unix_s = 0.0 if plan is None else plan.began_unix_s
    names = {one.identifier for one in told}
    forgotten = [
        one
        for one in kept
        if one.identifier not in names and one.detected_unix_s >= began_unix_s > 0
    ]
    return sorted([*told, *forgotten], key=lambda one: one.detected_unix_s)


def recall_all(effective: Effective, job: str | None) -> list[Recollection]:
    """As `recall`; without a name, of every job there is."""
    names = [] if job is not None else find_names(effective)
    if len(names) < 2:
        return [recall(effective, job)]
    known = [one for name in names if (one := _recall_if_known(effective, name)) is not None]
    return known or [recall(effective, job)]


def _recall_if_known(effective: Effective, job: str) -> Recollection | None:
    """None for a job that left a record and nothing else, or is cut off and kept nothing here."""
    try:
        return recall(effective, job)
    except (NoSuchJob, store_away.CutOff):
        return None


def remark(*records: Recollection) -> None:
    """Say on stderr of which jobs only this machine's memory is told."""
    for record in records:
        if record.remark:
            click.echo(f"holdfast: {record.remark}", err=True)


def choose(known: list[Incident], wanted: str | None) -> Incident:
    """The newest incident, or the one whose name begins so; BadInput when it isn't one."""
    if wanted is None:
        return known[-1]
    matching = [one for one in known if one.identifier.startswith(wanted)]
    if len(matching) == 1:
        return matching[0]
    names = ", ".join(one.identifier for one in matching or known) or "none"
    what = "several incidents begin" if matching else "no incident begins"
    raise BadInput(f"{what} with {wanted!r}; known: {names}")


def evidence_files(state: Path, story: Story) -> list[tuple[Path, int]]:
    """Files (and sizes) that the nodes of this machine kept of the incident.

    Ranks that died by themselves left their last words with the attempt; what was copied from there
    to the incident is named once.
    """
    found: dict[tuple[str, str], tuple[Path, int]] = {}
    for pattern in (f"incidents/{story.identifier}", f"evidence/attempt-{story.attempt}"):
        for path in find(state, f"*/{pattern}/*"):
            if count := _file_bytes(path):
                found.setdefault((path.parents[2].name, path.name), (path, count))
    return list(found.values())


def _file_bytes(path: Path) -> int:
    """Its size; 0 of what is no file, or was removed a moment ago."""
    try:
        status = path.stat()
    except OSError:
        return 0
    return status.st_size if stat.S_ISREG(status.st_mode) else 0


def _read(found: FoundJob) -> View:
    view = store_away.read_view(found)
    if not exists(view):
        raise store_away.unknown(found)
    return view
