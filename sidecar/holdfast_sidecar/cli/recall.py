"""A job from its store, and from what this machine kept where that is gone or can't be asked."""

from __future__ import annotations

import dataclasses
import json
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import click

from holdfast_sidecar.cli import find_job as store_away
from holdfast_sidecar.cli.find_job import FoundJob, NoAnswer, NoSuchJob, find_job, find_names
from holdfast_sidecar.config.loading import Effective
from holdfast_sidecar.config.paths import find, state_root
from holdfast_sidecar.config.settings import BadInput
from holdfast_sidecar.export.job_record import (
    JobRecord,
    losses_before,
    newest_ended,
    newest_record,
    read_record,
)
from holdfast_sidecar.export.status import attached_plan, exists, incidents
from holdfast_sidecar.incidents.aftermath import FIRST_ERROR, SUFFIX
from holdfast_sidecar.incidents.explain import IncidentStory
from holdfast_sidecar.incidents.first_error import Failure, Sign, confidence, order
from holdfast_sidecar.incidents.storage import newest_job, read_incidents
from holdfast_sidecar.performance.summary import see
from holdfast_sidecar.policy.cluster import Cluster, parse_cluster
from holdfast_sidecar.records.account import Account, parse_account
from holdfast_sidecar.records.formatting import span
from holdfast_sidecar.records.plan import TERMINAL, Incident, Plan
from holdfast_sidecar.records.reports import Losses, Performance
from holdfast_sidecar.store.protocol import View

AWAY = (NoSuchJob, NoAnswer, store_away.CutOff)
"""Why the store tells nothing: what this machine kept is told then."""


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


@dataclass(frozen=True)
class RememberedJob:
    """How a job stood when this machine last heard of it."""

    job: str
    record: JobRecord
    at_unix_s: float
    is_over: bool
    """Else nobody can be asked whether it is."""
    remark: str = ""
    why_unknown: str = "its Redis does not answer"
    """Why nobody can be asked."""

    @property
    def trouble(self) -> str:
        """What is wrong with it; empty when it ended well."""
        unknown = f"how it stands now is not known: {self.why_unknown}"
        return self.record.trouble if self.is_over else unknown


def remember(job: str, kept: tuple[JobRecord, float], error: Exception) -> RememberedJob:
    """What is kept of a job whose store is gone, or does not answer: `error` says which."""
    record, at_unix_s = kept
    is_gone = isinstance(error, NoSuchJob)
    note = "" if is_gone else from_memory(job, error)
    told = RememberedJob(job, record, at_unix_s, is_gone or record.was_heard_to_end, note)
    if isinstance(error, store_away.CutOff):
        return dataclasses.replace(told, why_unknown=error.in_short)
    return told


def recall(effective: Effective, job: str | None) -> Recollection:
    """A job's incidents from its store; from this machine's disk where that can't be asked."""
    try:
        found = find_job(effective, job)
        view = _read(found)
        kept = read_incidents(found.state)
        told = with_forgotten(incidents(view), kept, parse_cluster(view).plan)
        return Recollection(found.job, found.state, told, ending=_ending(view))
    except AWAY as error:
        root = state_root(effective.settings.paths)
        state = newest_job(root) if job is None else root / job
        kept = [] if state is None else read_incidents(state)
        if state is not None and kept:
            return Recollection(state.name, state, kept, from_memory(state.name, error))
        without = _recall_without_incident(root, job, error)
        if without is None:
            raise
        return without


def from_memory(job: str, error: Exception) -> str:
    """What is said beside the records that are kept here: why they are told, in one line."""
    words = error.format_message() if isinstance(error, click.ClickException) else str(error)
    return f"{words}; this is what is kept here of job {job!r}"


def _recall_without_incident(root: Path, job: str | None, error: Exception) -> Recollection | None:
    """A job that had none, as far as is known here."""
    state = newest_ended(root) if job is None else root / job
    kept = None if state is None else read_record(state)
    if state is None or kept is None:
        return None
    remembered = remember(state.name, kept, error)
    ending = remembered.record.ending if remembered.is_over else ""
    return Recollection(state.name, state, [], remembered.remark, ending)


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


def remember_incidents(cluster: Cluster, state: Path) -> Cluster:
    """The job with those incidents of its run, too, that only this machine still knows of."""
    told = with_forgotten(list(cluster.incidents.values()), read_incidents(state), cluster.plan)
    return dataclasses.replace(cluster, incidents={one.identifier: one for one in told})


def recall_all(effective: Effective, job: str | None) -> list[Recollection]:
    """As `recall`; without a name, of every job there is."""
    names = [] if job is not None else _names(effective)
    if len(names) < 2:
        return [recall(effective, job)]
    known = [one for name in names if (one := _recall_if_known(effective, name)) is not None]
    return known or [recall(effective, job)]


def _names(effective: Effective) -> list[str]:
    try:
        return find_names(effective)
    except NoAnswer:
        return []


def _recall_if_known(effective: Effective, job: str) -> Recollection | None:
    """None for a job that left a record and nothing else, or is cut off and kept nothing here."""
    try:
        return recall(effective, job)
    except AWAY:
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


def evidence_files(state: Path, story: IncidentStory) -> list[tuple[Path, int]]:
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


# How well a job's steps go, from its store; from what this machine kept where that is gone.


@dataclass(frozen=True)
class Recalled:
    """A job's performance. `remark` says when it is this machine's memory only."""

    job: str
    performance: Performance | None
    """None: nothing was ever told of its steps."""
    is_over: bool
    before: Losses = field(default_factory=Losses)
    """Of runs before this one, as far as this machine kept them."""
    remark: str = ""
    attempt: int = -1
    """The one under way; -1: none is."""
    is_of_earlier_run: bool = False
    """Of this run nothing is known yet: what is told is of the one before."""
    account: Account | None = None
    """Where the run's time went; None: nobody has told."""
    incidents: Mapping[str, Incident] = field(default_factory=dict)
    """All that are known of the job."""


def recall_performance(effective: Effective, job: str | None) -> Recalled:
    """Raises what `find_job` and the store do where nothing was kept here either."""
    root = state_root(effective.settings.paths)
    try:
        found = find_job(effective, job)
        view = store_away.read_view(found)
        if not exists(view):
            raise store_away.unknown(found)
    except AWAY as error:
        state = newest_ended(root) if job is None else root / job
        kept = None if state is None else read_record(state)
        if state is None or kept is None:
            raise
        is_over = remember(state.name, kept, error).is_over
        return _remembered(state, kept[0], is_over, from_memory(state.name, error))
    cluster = parse_cluster(view)
    live = _live(found, view)
    if cluster.account is None:
        return live
    known = remember_incidents(cluster, found.state).incidents
    return dataclasses.replace(live, account=cluster.account, incidents=known)


def _live(found: FoundJob, view: View) -> Recalled:
    cluster = parse_cluster(view)
    plan = cluster.plan or attached_plan(view)
    kept = read_record(found.state)
    record = None if kept is None else kept[0]
    if plan is None:
        return Recalled(found.job, None, is_over=False)
    attempt = -1 if plan.state in TERMINAL else plan.attempt
    seen = see(plan, list(cluster.nodes.values()), view.lease.candidate)
    is_over = plan.state in TERMINAL
    before = Losses() if record is None else losses_before(record, plan.began_unix_s)
    is_told = seen.standing is not None and plan.state not in TERMINAL
    if not is_told and record is not None and record.performance is not None:
        # A new leader has judged nothing yet, this run has only begun, or the ranks have left.
        return Recalled(
            found.job,
            record.performance,
            is_over,
            before,
            attempt=attempt,
            is_of_earlier_run=record.performance.began_unix_s != plan.began_unix_s,
        )
    return Recalled(found.job, seen, is_over, before, attempt=attempt)


def _remembered(state: Path, record: JobRecord, is_over: bool, remark: str) -> Recalled:
    performance = record.performance
    is_earlier = performance is not None and performance.began_unix_s != record.began_unix_s
    recalled = Recalled(
        state.name, performance, is_over, record.losses_before, remark, is_of_earlier_run=is_earlier
    )
    incidents = {one.identifier: one for one in read_incidents(state)}
    return dataclasses.replace(recalled, account=parse_account(record.account), incidents=incidents)


# What lies on this machine of an incident, for people: who failed first, and where bundles are.

FAILURES_TOLD = 4
"""The first and what followed at once; the rest is in the files."""

LONGEST_WORDS = 200

FILES_LISTED = 6
"""So many files are listed one by one; a directory with more is told as a whole."""


def bundles(state: Path, story: IncidentStory) -> list[str]:
    """Where the incident's bundles are: paths on this machine, `host:path` on others."""
    here = find(state, f"*/incidents/{story.identifier}{SUFFIX}")
    nodes_here = {path.parents[1].name for path in here}
    elsewhere = [place for node, place in sorted(story.bundles.items()) if node not in nodes_here]
    return [*map(str, here), *elsewhere]


def failures(state: Path, story: IncidentStory) -> list[Failure]:
    """Who failed, the first one first, from what the nodes of this machine kept together."""
    signs: dict[Sign, None] = {}
    for path in find(state, f"*/incidents/{story.identifier}/{FIRST_ERROR}"):
        signs |= dict.fromkeys(_read_signs(path))
    return order(signs)


def tell_failures(found: Sequence[Failure]) -> list[str]:
    """`rank 3 on node b: ValueError: … (90% sure)`, then who followed and how much later."""
    if not found:
        return []
    first, *others = found
    lines = [f"first     {_who(first)} ({confidence(found):.0%} sure it was the first to fail)"]
    lines += [f"then      {_who(one)}{_later(first, one)}" for one in others[: FAILURES_TOLD - 1]]
    more = len(others) - (FAILURES_TOLD - 1)
    return [*lines, *([f"          and {more} more"] if more > 0 else [])]


def in_brief(kept: Sequence[tuple[Path, int]]) -> list[tuple[str, int]]:
    """Files and sizes as they are listed: of a directory with many, only what is there in all."""
    by_folder: dict[Path, list[tuple[Path, int]]] = {}
    for path, count in kept:
        by_folder.setdefault(path.parent, []).append((path, count))
    rows = []
    for folder, inside in by_folder.items():
        if len(inside) > FILES_LISTED:
            rows.append((f"{folder}/ ({len(inside)} files)", sum(count for _, count in inside)))
        else:
            rows += [(str(path), count) for path, count in inside]
    return rows


def _who(failure: Failure) -> str:
    words = " ".join(failure.words.split())
    cut = words if len(words) <= LONGEST_WORDS else f"{words[:LONGEST_WORDS]}…"
    return f"rank {failure.rank} on node {failure.node}: {cut}"


def _later(first: Failure, then: Failure) -> str:
    if first.at_unix_s is None or then.at_unix_s is None:
        return ""
    after_s = then.at_unix_s - first.at_unix_s
    when = f"{span(after_s)} later" if after_s >= 0 else f"{span(-after_s)} earlier"
    return f" ({when}{'' if then.is_own else ', having lost a peer'})"


def _read_signs(path: Path) -> Iterator[Sign]:
    known = {field.name for field in fields(Sign)}
    try:
        for sign in json.loads(path.read_text())["signs"]:
            given: dict[str, Any] = {name: sign[name] for name in known & set(sign)}
            yield Sign(**given)
    except (OSError, ValueError, TypeError, KeyError):
        return
