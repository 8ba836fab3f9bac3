"""`holdfast report`: how well a job does, or did."""

from __future__ import annotations

import json
import time

import click

from holdfast import environment
from holdfast_sidecar.cli import report_page
from holdfast_sidecar.cli.performance_recall import recall_performance
from holdfast_sidecar.cli.settings_options import settings_options
from holdfast_sidecar.configuration import Effective


@click.command()
@click.argument("name", required=False, metavar="[JOB]")
@click.option("--job", envvar=environment.JOB, metavar="NAME", help="Default: the only one here.")
@click.option("--json", "as_json", is_flag=True, help="For scripts: one JSON object.")
@settings_options
def report(effective: Effective, name: str | None, job: str | None, as_json: bool) -> None:
    """Tell how well a job uses its machines, and what slowness cost it so far.

    MFU and HFU, tokens per second, the shares of communication, data and pipeline bubbles, the
    pace against the first steps; where a step's time goes; memory of each rank's device; seconds
    (and money, with `[cost] per_gpu_hour`) lost by cause and by rank. What is not known says why.
    Works after the job has ended too, from what was kept here.

    \b
      holdfast report
      holdfast report chargpt --set cost.per_gpu_hour=2.5
      holdfast report --json | jq .efficiency.mfu
    """
    recalled = recall_performance(effective, name or job)
    if recalled.remark:
        click.echo(f"holdfast: {recalled.remark}", err=True)
    price = effective.settings.cost
    if as_json:
        click.echo(json.dumps(report_page.plain(recalled, price), indent=2))
    else:
        click.echo(report_page.page(recalled, time.time(), price))
