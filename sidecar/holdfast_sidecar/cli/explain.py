"""`holdfast explain`: an incident's story, or who is slow and why.

From the store, and from what this machine kept.
"""

from __future__ import annotations

import dataclasses
import json
import time
from pathlib import Path
from typing import Any

import click

from holdfast.contract import environment
from holdfast_sidecar.cli import slow as slow_page
from holdfast_sidecar.cli.options import one_job, settings_options
from holdfast_sidecar.cli.recall import (
    Recollection,
    bundles,
    choose,
    evidence_files,
    failures,
    in_brief,
    recall,
    recall_all,
    recall_performance,
    remark,
    tell_failures,
)
from holdfast_sidecar.cli.tables import BAD, GOOD, paint, size, table, wrapped
from holdfast_sidecar.config.loading import Effective
from holdfast_sidecar.config.settings import BadInput
from holdfast_sidecar.incidents.advice import advise
from holdfast_sidecar.incidents.explain import IncidentStory, describe_decision, sum_up, tell, whom
from holdfast_sidecar.records.formatting import span

# Incidents as pages for people. Pure, except that paint looks at the terminal.


def page(story: IncidentStory, kept: list[tuple[Path, int]], state: Path) -> str:
    """The story for people: the verdict first, what to do next at the end. `state`: the job's
    directory on this machine."""
    parts = [
        sum_up(story),
        f"incident {story.identifier}, attempt {story.attempt}: {story.cause}, {_outcome(story)}",
        _chapters(story),
        "\n".join([*_summary(story), *tell_failures(failures(state, story))]),
    ]
    if steps := advise(story):
        parts.append("\n".join(_next(step) for step in steps))
    if kept:
        rows = [[name, size(count)] for name, count in in_brief(kept)]
        parts.append(table(["evidence on this machine", "size"], rows))
    if packed := bundles(state, story):
        parts.append("\n".join(["packed, to hand on", *packed]))
    return "\n\n".join(parts)


def plain(story: IncidentStory) -> dict[str, Any]:
    """The story for scripts: what `page` tells, by name."""
    return dataclasses.asdict(story) | {"verdict": sum_up(story), "next": advise(story)}


def _next(step: str) -> str:
    return "\n".join(wrapped("next", step, 10))


def _outcome(story: IncidentStory) -> str:
    if story.decided == "stop":
        return paint("the job was stopped", BAD)
    if story.is_withheld:
        ended = "it went over into another" if story.went_over_into else "its attempt ended"
        how = "it was over by itself" if story.lost_s is not None else ended
        seen = "seen and left alone"
        return f"{seen} until {how}" if story.is_over else paint(f"{seen}, not over yet", BAD)
    return paint("recovered", GOOD) if story.is_over else paint("not over yet", BAD)


def _chapters(story: IncidentStory) -> str:
    rows = [
        [_clock(chapter.at_unix_s), f"+{span(chapter.after_s)}", chapter.what]
        for chapter in story.chapters
    ]
    return table(["time", "after", "what happened"], rows)


def _summary(story: IncidentStory) -> list[str]:
    who = whom(story.culprit_node, story.culprit_ranks, story.cause)
    lines = [f"to blame  {who}, {story.confidence:.0%} sure"]
    lines += [f"because   {reason}" for reason in story.reasons or [story.signature] if reason]
    if story.kept_by:
        lines.append(f"kept      evidence of it, on {', '.join(story.kept_by)}")
    done = " ".join(filter(None, (describe_decision(story.decided), story.how)))
    lines.append(f"done      {done or 'nothing yet'}")
    if story.lost_s is not None and story.is_withheld:
        lines.append(f"lasted    {span(story.lost_s)}")
    elif story.lost_s is not None:
        steps = f", {story.lost_steps} step{'s' * (story.lost_steps != 1)} done again"
        again = "" if story.lost_steps is None else steps
        lines.append(f"cost      {span(story.lost_s)} without progress{again}")
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
            whom(story.culprit_node, story.culprit_ranks, story.cause),
            story.decided or "-",
            "-" if story.lost_s is None else span(story.lost_s),
            "-" if story.lost_steps is None else str(story.lost_steps),
        ]
        for record in records
        for story in map(tell, record.incidents)
    ]
    if not rows:
        told = [record.without_incident for record in records if record.ending]
        return "\n".join(told) or "no incident so far"
    headings = [] if is_one else ["job"]
    headings += ["incident", "when", "attempt", "cause", "to blame", "done", "time", "steps"]
    return table(headings, rows)


def _clock(unix_s: float) -> str:
    milliseconds = int(unix_s * 1000) % 1000
    return f"{time.strftime('%H:%M:%S', time.localtime(unix_s))}.{milliseconds:03d}"


def _why_not_packed(story: IncidentStory) -> str:
    if not story.is_over:
        return "yet: it is not over"
    return "(that takes a moment; of attached jobs nothing is packed, and old bundles are removed)"


@click.command()
@click.argument("incident", required=False, metavar="[INCIDENT]")
@click.option("--job", envvar=environment.JOB, metavar="NAME", help="Default: the only one here.")
@click.option("--bundle", is_flag=True, help="Only where its evidence is packed, line by line.")
@click.option("--slow", is_flag=True, help="Who is slow, why, and what it costs; takes a JOB.")
@click.option("--json", "as_json", is_flag=True, help="For scripts.")
@settings_options
def explain(
    effective: Effective,
    incident: str | None,
    job: str | None,
    bundle: bool,
    slow: bool,
    as_json: bool,
) -> None:
    """Tell the story of an incident: the newest, or INCIDENT (the beginning of its name is enough).

    The verdict in one sentence; then what happened when, who is to blame and how sure that is, what
    was done, what it cost, what to do next, and which evidence lies on this machine. Works after
    the job has ended too, from what was kept here. `holdfast incidents` lists them all.

    With --slow: which rank, node or link slows the others, since when, by what evidence, what
    helps, what it costs, what can't be judged; and a bar for each rank.

    \b
      holdfast explain
      holdfast explain 3f2a --job chargpt
      holdfast explain --slow chargpt
      holdfast explain --json | jq -r .verdict
      scp $(holdfast explain --bundle) desk:
    """
    if slow:
        if bundle:
            raise BadInput("--slow has no bundle: that is of an incident")
        _explain_slow(effective, one_job(incident, job), as_json)
        return
    record = recall(effective, job)
    remark(record)
    known = record.incidents
    if not known and incident is None:
        click.echo("null" if as_json else record.without_incident)
        return
    story = tell(choose(known, incident))
    packed = bundles(record.state, story)
    if bundle:
        if not packed:
            raise BadInput(f"incident {story.identifier} is not packed {_why_not_packed(story)}")
        click.echo("\n".join(packed))
        return
    kept = evidence_files(record.state, story)
    if as_json:
        failed = [dataclasses.asdict(one) for one in failures(record.state, story)]
        found = {"files": [str(path) for path, _ in kept], "packed": packed, "failed": failed}
        click.echo(json.dumps(plain(story) | found, indent=2))
    else:
        click.echo(page(story, kept, record.state))


def _explain_slow(effective: Effective, job: str | None, as_json: bool) -> None:
    recalled = recall_performance(effective, job)
    if recalled.remark:
        click.echo(f"holdfast: {recalled.remark}", err=True)
    price = effective.settings.cost
    if as_json:
        click.echo(json.dumps(slow_page.plain(recalled, price), indent=2))
    else:
        click.echo(slow_page.page(recalled, time.time(), price))


# `holdfast incidents`: one line for each incident, or all of it for scripts.


@click.command()
@click.option("--job", envvar=environment.JOB, metavar="NAME", help="Default: all jobs here.")
@click.option("--json", "as_json", is_flag=True, help="For scripts: all stories, oldest first.")
@settings_options
def incidents(effective: Effective, job: str | None, as_json: bool) -> None:
    """List the incidents of all jobs, or of --job, oldest first.

    Of jobs that are gone, those that this machine kept. `holdfast explain INCIDENT` tells one.

    \b
      holdfast incidents
      holdfast incidents --job chargpt
      holdfast incidents --json | jq '.[] | select(.decided == "stop") | .verdict'
    """
    records = recall_all(effective, job)
    remark(*records)
    if as_json:
        stories = [
            {"job": record.job} | plain(tell(one)) for record in records for one in record.incidents
        ]
        click.echo(json.dumps(stories, indent=2))
    else:
        click.echo(listing(records, time.time()))
