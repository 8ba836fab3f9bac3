"""`holdfast dashboards annotate`: a job's incidents as regions in Grafana's graphs."""

from __future__ import annotations

import os
from collections.abc import Sequence

import click

from holdfast import environment
from holdfast_sidecar.cli.dashboards.options import dry_run_option, grafana_option, token_option
from holdfast_sidecar.cli.dashboards.token import read_token
from holdfast_sidecar.cli.finding_the_job import NoSuchJob
from holdfast_sidecar.cli.recollection import Recollection, recall_all, remark
from holdfast_sidecar.cli.settings_options import settings_options
from holdfast_sidecar.config.loading import Effective
from holdfast_sidecar.config.settings import BadInput
from holdfast_sidecar.grafana.address import parse_address
from holdfast_sidecar.grafana.client import open_client
from holdfast_sidecar.grafana.marks import Change, marks, plan_marks, tags_of
from holdfast_sidecar.grafana.push_plan import check_version
from holdfast_sidecar.grafana.server import AnnotationServer

LIMIT_S = 600.0
"""Thousands of incidents at a tenth of a second each; called again it does the rest."""


@click.command("annotate")
@grafana_option
@token_option
@click.option("--job", envvar=environment.JOB, metavar="NAME", help="Default: all jobs here.")
@dry_run_option
@settings_options
def annotate_command(
    effective: Effective, grafana: str, token_file: str | None, job: str | None, dry_run: bool
) -> None:
    """Mark the incidents of a job in Grafana's graphs, from their first sign to their end.

    Each with its cause and its story in a sentence. Again after a while it adds what is new and
    brings to an end what is over; twice in a row it changes nothing.

    \b
      holdfast dashboards annotate --grafana https://grafana:3000 --token-file token --job chargpt
    """
    address = parse_address(grafana)
    token = read_token(token_file, os.environ)
    try:
        records = recall_all(effective, job)
    except NoSuchJob as error:
        raise BadInput(error.format_message()) from None
    remark(*records)
    server = open_client(address, token, LIMIT_S)
    check_version(server.version())
    due = [(record, _due(server, record)) for record in records]
    for record, changes in due:
        if not dry_run:
            _carry_out(server, changes)
        click.echo(_line(record, changes, dry_run))


def _due(server: AnnotationServer, record: Recollection) -> list[Change]:
    wanted = marks(record.job, record.incidents)
    return plan_marks(wanted, server.annotations(tags_of(record.job))) if wanted else []


def _carry_out(server: AnnotationServer, changes: Sequence[Change]) -> None:
    """One after the other: each is whole by itself, and a second call does what is left."""
    for change in changes:
        if change.number is None:
            server.add(change.mark)
        else:
            server.change(change.number, change.mark)


def _line(record: Recollection, changes: Sequence[Change], dry_run: bool) -> str:
    new = sum(change.number is None for change in changes)
    would = "would be " if dry_run else ""
    known = len(record.incidents) - len(changes)
    return (
        f"{record.job}: {new} incidents {would}marked, {len(changes) - new} {would}brought up to "
        f"date, {known} as they were"
    )
