"""`holdfast status`: reads the store twice, judges, prints."""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from collections.abc import Sequence
from typing import NoReturn

import click

from holdfast import environment
from holdfast_sidecar.cli import store_away
from holdfast_sidecar.cli.finding_the_job import find_job
from holdfast_sidecar.cli.looking_twice import read_twice
from holdfast_sidecar.cli.recollection import AWAY, Remembered, remember
from holdfast_sidecar.cli.settings_options import settings_options
from holdfast_sidecar.cli.sidecar_addresses import addresses_here
from holdfast_sidecar.cli.standing_page import page, page_url, remembered_page
from holdfast_sidecar.config.loading import Effective
from holdfast_sidecar.config.paths import state_root
from holdfast_sidecar.export.job_record import read_record
from holdfast_sidecar.export.status import Standing, judge


@click.command()
@click.option("--job", envvar=environment.JOB, metavar="NAME", help="Default: the only one here.")
@click.option("--json", "as_json", is_flag=True, help="For scripts: one JSON object.")
@settings_options
def status(effective: Effective, job: str | None, as_json: bool) -> None:
    """Show how a job stands.

    What is found and needs nothing to be done is shown at the end, and is no trouble.

    Takes a second or two where something is dead: a heartbeat proves life only by moving. With
    --job, a job that is gone, or whose Redis does not answer, is told from what this machine kept;
    where its sidecar is alive here, with the address of the page that shows what that one sees.

    \b
      holdfast status
      holdfast status --job chargpt --redis rediss://redis.example:6379
      holdfast status --json | jq .trouble

    \b
    Exit code: 0 the job is healthy (running, or ended well)
               1 it is in trouble (the reasons are printed)
               2 something you gave is wrong
               3 there is no such job
    """
    try:
        standing = _standing(effective, job)
    except AWAY as error:
        name = error.job if isinstance(error, store_away.CutOff) else job
        state = None if name is None else state_root(effective.settings.paths) / name
        kept = None if state is None else read_record(state)
        if name is None or state is None or kept is None:
            raise
        _tell_remembered(remember(name, kept, error), list(addresses_here(state)), as_json)
    if as_json:
        healthy = {"is_healthy": standing.is_healthy}
        click.echo(json.dumps(dataclasses.asdict(standing) | healthy, indent=2, allow_nan=False))
    else:
        click.echo(page(standing, time.time()))
    sys.exit(0 if standing.is_healthy else 1)


def _standing(effective: Effective, job: str | None) -> Standing:
    """How the job stands; raises one of AWAY when no store holds it, or none can be asked."""
    found = find_job(effective, job)
    before, after = read_twice(found, effective.settings.sidecar.node_timeout_s)
    return judge(found.job, before, after)


def _tell_remembered(remembered: Remembered, addresses: Sequence[str], as_json: bool) -> NoReturn:
    """addresses: of the sidecars here that live, and show what they see by themselves."""
    if remembered.remark:
        click.echo(f"holdfast: {remembered.remark}", err=True)
    trouble = [remembered.trouble] if remembered.trouble else []
    if as_json:
        more = {"job": remembered.job, "at_unix_s": remembered.at_unix_s, "trouble": trouble}
        more |= {"pages": [page_url(one) for one in addresses], "is_healthy": not trouble}
        told = dataclasses.asdict(remembered.record) | more
        click.echo(json.dumps(told, indent=2))
    else:
        click.echo(remembered_page(remembered, time.time(), addresses))
    sys.exit(1 if trouble else 0)
