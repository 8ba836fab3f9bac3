"""The configurations that Holdfast ships, with the addresses of this machine in them; else as they
are."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from testing.pager import prometheus_settings, routes_to

ROOT = Path(__file__).resolve().parents[2]
SCRAPING = ROOT / "deploy" / "prometheus" / "prometheus.yml"
ALERTS = ROOT / "alerts"
RUNBOOKS = ALERTS / "runbooks"


def write_prometheus(folder: Path, sidecars: Sequence[str], alertmanager: str = "") -> None:
    """Rules and configuration. sidecars: host:port of those that lead to the others."""
    shutil.copytree(ALERTS / "rules", folder / "rules")
    settings = prometheus_settings(SCRAPING.read_text(), sidecars, alertmanager)
    (folder / "prometheus.yml").write_text(settings)


def write_alertmanager(folder: Path, webhook: str) -> None:
    """Routes and times as shipped; every receiver is a path of this webhook."""
    routes = routes_to((ALERTS / "alertmanager.yml").read_text(), webhook)
    (folder / "alertmanager.yml").write_text(routes)
