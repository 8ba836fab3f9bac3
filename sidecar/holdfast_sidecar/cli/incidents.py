"""`holdfast incidents`: one line for each incident, or all of it for scripts."""

from __future__ import annotations

import json
import time

import click

from holdfast import environment
from holdfast_sidecar.cli.recollection import recall_all, remark
from holdfast_sidecar.cli.settings_options import settings_options
from holdfast_sidecar.cli.story_page import listing, plain
from holdfast_sidecar.config.loading import Effective
from holdfast_sidecar.incidents.explain import tell


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
