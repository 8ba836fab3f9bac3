"""`holdfast explain`: an incident's story, or who is slow and why.

From the store, and from what this machine kept.
"""

from __future__ import annotations

import dataclasses
import json
import time

import click

from holdfast import environment
from holdfast_sidecar.cli import slow_page
from holdfast_sidecar.cli.job_twice import one_job
from holdfast_sidecar.cli.kept_here import bundles, failures
from holdfast_sidecar.cli.performance_recall import recall_performance
from holdfast_sidecar.cli.recollection import choose, evidence_files, recall, remark
from holdfast_sidecar.cli.settings_options import settings_options
from holdfast_sidecar.cli.story_page import page, plain
from holdfast_sidecar.config.loading import Effective
from holdfast_sidecar.config.settings import BadInput
from holdfast_sidecar.incidents.explain import Story, tell


def _why_not_packed(story: Story) -> str:
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
