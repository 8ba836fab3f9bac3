"""`holdfast explain`: an incident's story, from the store and from what this machine kept."""

from __future__ import annotations

import dataclasses
import json
import time
from dataclasses import dataclass
from pathlib import Path

import click

from holdfast import environment
from holdfast_sidecar.bad_input import BadInput
from holdfast_sidecar.chronicle import newest_job, read_incidents
from holdfast_sidecar.cli import store_away
from holdfast_sidecar.cli.finding_the_job import FoundJob, NoSuchJob, find_job, find_names
from holdfast_sidecar.cli.settings_options import settings_options
from holdfast_sidecar.cli.table import BAD, GOOD, paint, size, span, table
from holdfast_sidecar.configuration import Effective
from holdfast_sidecar.coordination.reports import Incident
from holdfast_sidecar.coordination.store import View
from holdfast_sidecar.places import state_root
from holdfast_sidecar.standing import exists, incidents
from holdfast_sidecar.story import Story, tell, whom


@click.command()
@click.argument("incident", required=False)
@click.option("--job", envvar=environment.JOB, metavar="NAME", help="Default: the only one here.")
@click.option("--list", "as_list", is_flag=True, help="All incidents of all jobs, or of --job.")
@click.option("--json", "as_json", is_flag=True, help="For scripts.")
@settings_options
def explain(
    effective: Effective, incident: str | None, job: str | None, as_list: bool, as_json: bool
) -> None:
    """Tell the story of an incident: the newest, or INCIDENT (the beginning of its name is enough).

    What happened when, who is to blame and how sure that is, what was done, what it cost, and
    which evidence lies on this machine. Works after the job has ended too, from what was kept here.

    \b
      holdfast explain
      holdfast explain --list
      holdfast explain 3f2a --job chargpt
    """
    if as_list:
        records = recall_all(effective, job)
        _remark(*records)
        click.echo(_json(records) if as_json else listing(records, time.time()))
        return
    record = recall(effective, job)
    _remark(record)
    known = record.incidents
    if not known and incident is None:
        click.echo("null" if as_json else f"job {record.job}: no incident so far")
        return
    story = tell(choose(known, incident))
    kept = evidence_files(record.state, story)
    if as_json:
        files = [str(path) for path, _ in kept]
        click.echo(json.dumps(dataclasses.asdict(story) | {"files": files}, indent=2))
    else:
        click.echo(page(story, kept))


@dataclass(frozen=True)
class Recollection:
    """A job's incidents, oldest first; `remark` says when they are this machine's memory only."""

    job: str
    state: Path
    incidents: list[Incident]
    remark: str = ""


def recall(effective: Effective, job: str | None) -> Recollection:
    """A job's incidents from its store; from this machine's disk where that is gone."""
    try:
        found = find_job(effective, job)
        return Recollection(found.job, found.state, incidents(_read(found)))
    except (NoSuchJob, store_away.CutOff) as error:
        root = state_root(effective.settings.paths)
        state = newest_job(root) if job is None else root / job
        kept = [] if state is None else read_incidents(state)
        if state is None or not kept:
            raise
        remark = f"{error.format_message()}; this is what is kept here of job {state.name!r}"
        return Recollection(state.name, state, kept, remark)


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


def _remark(*records: Recollection) -> None:
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
        for path in sorted(state.glob(f"*/{pattern}/*")):
            count = path.stat().st_size if path.is_file() else 0
            if count:
                found.setdefault((path.parents[2].name, path.name), (path, count))
    return list(found.values())


def page(story: Story, kept: list[tuple[Path, int]]) -> str:
    """The story for people."""
    parts = [
        f"incident {story.identifier}, attempt {story.attempt}: {story.cause}, {_outcome(story)}",
        _chapters(story),
        "\n".join(_summary(story)),
    ]
    if kept:
        rows = [[str(path), size(count)] for path, count in kept]
        parts.append(table(["evidence on this machine", "size"], rows))
    return "\n\n".join(parts)


def _read(found: FoundJob) -> View:
    view = store_away.read_view(found)
    if not exists(view):
        raise store_away.unknown(found)
    return view


def _outcome(story: Story) -> str:
    if story.decided == "stop":
        return paint("the job was stopped", BAD)
    return paint("recovered", GOOD) if story.is_over else paint("not over yet", BAD)


def _chapters(story: Story) -> str:
    rows = [
        [_clock(chapter.at_unix_s), f"+{span(chapter.after_s)}", chapter.what]
        for chapter in story.chapters
    ]
    return table(["time", "after", "what happened"], rows)


def _summary(story: Story) -> list[str]:
    who = whom(story.culprit_node, story.culprit_ranks)
    lines = [f"to blame  {who}, {story.confidence:.0%} sure"]
    lines += [f"because   {reason}" for reason in story.reasons or [story.signature] if reason]
    if story.kept_by:
        lines.append(f"kept      evidence of it, on {', '.join(story.kept_by)}")
    lines.append(f"done      {story.decided or 'nothing yet'}")
    if story.lost_s is not None:
        steps = f"{story.lost_steps} step{'s' * (story.lost_steps != 1)}"
        lines.append(f"cost      {span(story.lost_s)} without progress, {steps} done again")
    return lines


def listing(records: list[Recollection], now_unix_s: float) -> str:
    """One line for each incident; of several jobs, each with its name."""
    is_one = len(records) == 1
    rows = [
        [
            *(() if is_one else (record.job,)),
            story.identifier,
            f"{span(now_unix_s - story.chapters[0].at_unix_s)} ago",
            str(story.attempt),
            story.cause,
            whom(story.culprit_node, story.culprit_ranks),
            story.decided or "-",
            "-" if story.lost_s is None else span(story.lost_s),
            "-" if story.lost_steps is None else str(story.lost_steps),
        ]
        for record in records
        for story in map(tell, record.incidents)
    ]
    headings = [] if is_one else ["job"]
    headings += ["incident", "when", "attempt", "cause", "to blame", "done", "time", "steps"]
    return table(headings, rows)


def _clock(unix_s: float) -> str:
    milliseconds = int(unix_s * 1000) % 1000
    return f"{time.strftime('%H:%M:%S', time.localtime(unix_s))}.{milliseconds:03d}"


def _json(records: list[Recollection]) -> str:
    stories = [
        {"job": record.job} | dataclasses.asdict(tell(one))
        for record in records
        for one in record.incidents
    ]
    return json.dumps(stories, indent=2)
