"""Options that the commands that talk to a Grafana share."""

from __future__ import annotations

import click

from holdfast import environment

grafana_option = click.option(
    "--grafana", required=True, metavar="URL", help="Its address, with the sub-path if it has one."
)
token_option = click.option(
    "--token-file",
    metavar="FILE",
    help=f"Has a service account's token. Default: ${environment.GRAFANA_TOKEN}.",
)
dry_run_option = click.option(
    "--dry-run", is_flag=True, help="Only say what would be changed, line by line."
)
