"""`holdfast alerts`: the Prometheus rules, routes and runbooks that come with Holdfast."""

from __future__ import annotations

import click

from holdfast_sidecar.cli.alerts.checking import check_command
from holdfast_sidecar.cli.alerts.exporting import export_command


@click.group()
def alerts() -> None:
    """Write out the rules for Prometheus, the routes for Alertmanager and the runbooks; check them.

    \b
      holdfast alerts export --out alerting --dashboard-url https://grafana.internal
      holdfast alerts export --format kubernetes | kubectl apply -f -
      holdfast alerts check                           what comes with Holdfast
      holdfast alerts check my-rules.yaml             and what you made of it
    """


for command in (export_command, check_command):
    alerts.add_command(command)
