"""`holdfast dashboards`: into a Grafana, into files; incidents as marks in its graphs."""

from __future__ import annotations

import click

from holdfast_sidecar.cli.dashboards.annotating import annotate_command
from holdfast_sidecar.cli.dashboards.exporting import export_command
from holdfast_sidecar.cli.dashboards.pushing import push_command


@click.group()
def dashboards() -> None:
    """Bring the dashboards into a Grafana, or into files; mark incidents in its graphs.

    \b
      holdfast dashboards push --grafana https://grafana:3000 --dry-run
      holdfast dashboards push --grafana https://grafana:3000 --token-file token
      holdfast dashboards export --out grafana
      holdfast dashboards annotate --grafana https://grafana:3000 --job chargpt
    """


for command in (push_command, export_command, annotate_command):
    dashboards.add_command(command)
