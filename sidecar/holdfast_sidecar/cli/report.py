"""`holdfast report`: where a run's time went, and how well a job does, or did."""

from __future__ import annotations

import json
import time
from pathlib import Path

import click

from holdfast.contract import environment
from holdfast_sidecar.cli import report_pages
from holdfast_sidecar.cli.options import one_job, settings_options
from holdfast_sidecar.cli.recall import Recalled, recall_performance
from holdfast_sidecar.cli.report_html import page as html_page
from holdfast_sidecar.config.loading import Effective
from holdfast_sidecar.config.settings import BadInput, CostSettings
from holdfast_sidecar.performance.goodput.summary import Summary, plain, sum_up
from holdfast_sidecar.records.formatting import hours_of


@click.command()
@click.argument("name", required=False, metavar="[JOB]")
@click.option("--job", envvar=environment.JOB, metavar="NAME", help="Default: the only one here.")
@click.option("--json", "as_json", is_flag=True, help="For scripts: one JSON object.")
@click.option(
    "--html", "html", metavar="FILE", help="Write a page with plots, all in one file, instead."
)
@settings_options
def report(
    effective: Effective, name: str | None, job: str | None, as_json: bool, html: str | None
) -> None:
    """Tell where a run's time went, what its failures cost, and how well it uses its machines.

    Goodput and what took the rest, each incident with its cost, what would gain most; MFU and HFU,
    tokens per second, the shares of communication, data and pipeline bubbles, the pace against the
    first steps; where a step's time goes; memory of each rank's device; seconds (and money, with
    `[cost] per_gpu_hour`) lost by cause and by rank. What is not known says why. Works after the
    job has ended too, from what was kept here.

    \b
      holdfast report
      holdfast report chargpt --set cost.per_gpu_hour=2.5
      holdfast report --html report.html
      holdfast report --json | jq .account.goodput
    """
    if html is not None and as_json:
        raise BadInput("--json or --html: one of them")
    recalled = recall_performance(effective, one_job(name, job))
    if recalled.remark:
        click.echo(f"holdfast: {recalled.remark}", err=True)
    price = effective.settings.cost
    summary = _summary(recalled, price)
    seen = recalled.performance
    hours = "GPU hours" if seen is None else hours_of(seen, price)
    if html is not None:
        told = html_page(recalled.job, summary, recalled.performance, hours, time.time())
        _write(Path(html), told)
        click.echo(f"wrote {html}")
    elif as_json:
        plain_page = report_pages.plain(recalled, price)
        plain_page["account"] = None if summary is None else plain(summary)
        click.echo(json.dumps(plain_page, indent=2))
    else:
        if summary is not None:
            click.echo(report_pages.account_page(summary, hours) + "\n")
        click.echo(report_pages.report_page(recalled, time.time(), price))


def _summary(recalled: Recalled, price: CostSettings) -> Summary | None:
    if recalled.account is None:
        return None
    return sum_up(recalled.account, recalled.incidents, price)


def _write(path: Path, text: str) -> None:
    """Whole or not at all."""
    new = path.with_name(f".{path.name}.new")
    try:
        new.write_bytes(text.encode("utf-8", "replace"))
        new.replace(path)
    except OSError as error:
        raise BadInput(f"can't write {path}: {error.strerror}") from None
