"""`holdfast dashboards push`: what differs, and nothing else."""

from __future__ import annotations

import os

import click

from holdfast_sidecar.cli.dashboards.options import dry_run_option, grafana_option, token_option
from holdfast_sidecar.cli.dashboards.push_page import done_page, dry_page
from holdfast_sidecar.cli.dashboards.shipped import shipped_boards
from holdfast_sidecar.cli.dashboards.token import read_token
from holdfast_sidecar.grafana.address import parse_address
from holdfast_sidecar.grafana.client import open_client
from holdfast_sidecar.grafana.push_plan import OWN_FOLDER
from holdfast_sidecar.grafana.pushing import push, survey

LIMIT_S = 60.0
"""For sixteen requests at most, of which each takes a busy Grafana a second or two."""


@click.command("push")
@grafana_option
@token_option
@click.option(
    "--folder-uid",
    default=OWN_FOLDER.uid,
    metavar="UID",
    help=f"Default: {OWN_FOLDER.uid}, which is made; '' is the top.",
)
@click.option(
    "--data-source",
    default="",
    metavar="NAME|UID",
    help="Of type Prometheus; default: what is Grafana's default, and is chosen in the dashboards.",
)
@dry_run_option
def push_command(
    grafana: str, token_file: str | None, folder_uid: str, data_source: str, dry_run: bool
) -> None:
    """Create the dashboards in a Grafana (10 or newer), or bring them up to date there.

    Needs the extra `grafana` and a service account's token with the role Editor. Only what differs
    is pushed; everything that could stand in the way is asked first, and what can't be ended is put
    back.

    \b
      holdfast dashboards push --grafana https://grafana:3000 --token-file token --dry-run
      HOLDFAST_GRAFANA_TOKEN=… holdfast dashboards push --grafana https://example.org/grafana
      holdfast dashboards push --grafana http://localhost:3000 --folder-uid ml --data-source Mimir
    """
    address = parse_address(grafana)
    token = read_token(token_file, os.environ)
    boards = shipped_boards()
    server = open_client(address, token, LIMIT_S)
    plan = survey(server, boards, folder_uid, data_source)
    if dry_run:
        click.echo(dry_page(plan))
        return
    push(server, plan)
    click.echo(done_page(plan, address.url))
