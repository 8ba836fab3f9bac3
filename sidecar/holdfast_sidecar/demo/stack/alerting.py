"""Prometheus and Alertmanager, started with the shipped files."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from holdfast_sidecar.config.paths import asset
from holdfast_sidecar.demo import programs
from holdfast_sidecar.demo.stack.alerting_files import prometheus_settings, routes_to
from holdfast_sidecar.demo.stack.daemons import (
    Daemon,
    alertmanager_command,
    prometheus_command,
    start,
)
from holdfast_sidecar.demo.stack.haste import hastened
from holdfast_sidecar.demo.stack.receiver import Receiver
from holdfast_sidecar.demo.stack.requirements import ALERTMANAGER, PROMETHEUS, Requirement
from holdfast_sidecar.demo.stopped import DemonstrationStopped

EXPORT_LIMIT_S = 30.0
"""It writes some hundred small files."""
RESEND_S = 60.0
"""Prometheus' own default. What it says before it has found Alertmanager is lost until then."""


@dataclass(frozen=True)
class Alerting:
    """Both, running."""

    prometheus: Daemon
    alertmanager: Daemon

    def check(self) -> None:
        """DemonstrationStopped where one of them is gone."""
        for daemon in (self.prometheus, self.alertmanager):
            daemon.check()


@contextmanager
def run_alerting(
    folder: Path,
    found: Mapping[Requirement, str],
    sidecars: Sequence[str],
    factor: float,
    receiver: Receiver,
) -> Iterator[Alerting]:
    """Until the end of the block. DemonstrationStopped where one of them does not start.

    folder: theirs alone. sidecars: host:port of those that lead to all others. factor: by how much
    the shipped waits are shortened. receiver: who is on call, and serves the runbooks.
    """
    folder.mkdir()
    _export(folder, receiver.runbooks_url)
    _hasten(folder, factor)
    routes = folder / "alertmanager.yml"
    routes.write_text(routes_to(routes.read_text(), receiver.url))
    with ExitStack() as up:
        manager = start(
            "Alertmanager",
            partial(alertmanager_command, found[ALERTMANAGER], folder),
            folder / "alertmanager.log",
        )
        up.callback(manager.end)
        shipped = hastened(asset("deploy/prometheus/prometheus.yml").read_text(), factor)
        (folder / "prometheus.yml").write_text(
            prometheus_settings(shipped, sidecars, manager.address)
        )
        prometheus = start(
            "Prometheus",
            partial(prometheus_command, found[PROMETHEUS], folder, RESEND_S / factor),
            folder / "prometheus.log",
        )
        up.callback(prometheus.end)
        yield Alerting(prometheus, manager)


def _export(folder: Path, runbooks: str) -> None:
    """As a person does it."""
    try:
        done = subprocess.run(
            programs.export_alerts(folder, runbooks),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=EXPORT_LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise DemonstrationStopped("holdfast alerts export does not end") from None
    if done.returncode != 0:
        raise DemonstrationStopped(f"holdfast alerts export: {done.stderr.strip()}")


def _hasten(folder: Path, factor: float) -> None:
    for path in (*folder.glob("rules/*.yaml"), folder / "alertmanager.yml"):
        path.write_text(hastened(path.read_text(), factor))
