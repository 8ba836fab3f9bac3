"""Configurations of Prometheus and Alertmanager, made of the shipped ones. Pure.

As text, since a training environment need not have a YAML library. What this relies on, tests
check: Prometheus' file ends with the service discoveries, Alertmanager's with the receivers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

DISCOVERY = "    http_sd_configs:\n"
RECEIVERS = "\nreceivers:\n"
SCRAPING = "scrape_configs:\n"

NOBODY, WATCHDOG, PAGER, TICKETS = "nobody", "watchdog", "pager", "tickets"
"""The receivers that the shipped routes name."""

_REFRESH = re.compile(r"^\s+refresh_interval: (\S+)$", re.MULTILINE)


def prometheus_settings(shipped: str, sidecars: Sequence[str], alertmanager: str) -> str:
    """deploy/prometheus/prometheus.yml with these sidecars, and alerts sent to `alertmanager`.

    sidecars, alertmanager: host:port.
    """
    head, _, discoveries = shipped.partition(DISCOVERY)
    refresh = _REFRESH.search(discoveries)
    every = refresh[1] if refresh is not None else "30s"
    lines = [
        f"      - url: http://{sidecar}/sd\n        refresh_interval: {every}\n"
        for sidecar in sidecars
    ]
    alerting = (
        "alerting:\n  alertmanagers:\n    - static_configs:\n"
        f"        - targets: [{alertmanager}]\n\n"
    )
    return head.replace(SCRAPING, alerting + SCRAPING) + DISCOVERY + "".join(lines)


def routes_to(shipped: str, webhook: str) -> str:
    """alerts/alertmanager.yml with its routes and inhibition, and our webhook for everybody.

    webhook: URL; a receiver is called by its name below it.
    """
    head = shipped.partition(RECEIVERS)[0]
    receivers = [f"  - name: {NOBODY}\n"]
    for name in (WATCHDOG, PAGER, TICKETS):
        resolved = "false" if name == WATCHDOG else "true"
        receivers.append(
            f"  - name: {name}\n    webhook_configs:\n"
            f"      - url: {webhook}/{name}\n        send_resolved: {resolved}\n"
        )
    return head + RECEIVERS + "".join(receivers)
