"""Who is on duty: a real Alertmanager and a real Prometheus, with the rules that `holdfast alerts
export` writes, the shipped routes and the shipped scrape block.

Every wait is divided by a factor; with 1 the files stay as they are.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from testing.alerting import RESEND_S, hastened
from testing.pager import Notice, all_clear, pages, prometheus_settings, routes_to, tickets
from tests import prometheus_server
from tests.integration.alerts import alertmanager
from tests.integration.alerts.alertmanager import Alertmanager
from tests.prometheus_server import Prometheus
from tests.servers import wait_until

from holdfast_sidecar.config.paths import asset

_SILENCE = re.compile(r"(?<=node:holdfast_silence:seconds)\[\w+\]\) > [\d.]+")


@dataclass(frozen=True)
class Duty:
    """Everybody who was told of something by one Alertmanager."""

    manager: Alertmanager

    def pages(self, run: str) -> list[Notice]:
        """Each time that somebody was woken up for a run."""
        return pages(self.manager.webhook.notices(), run)

    def tickets(self, run: str, node: str = "") -> list[Notice]:
        """Each ticket of a run; with `node` those about this node alone."""
        found = tickets(self.manager.webhook.notices(), run)
        return [n for n in found if not node or any(a.node == node for a in n.alerts)]

    def all_clear(self, run: str) -> Notice | None:
        """What said that a page is over."""
        return all_clear(self.manager.webhook.notices(), run)

    def has_ticket(self, run: str, node: str, alert: str) -> bool:
        """Whether a ticket about this node names this alert."""
        return any(alert in ticket.names for ticket in self.tickets(run, node))

    def await_that(self, is_so: Callable[[], bool], what: str, timeout_s: float) -> None:
        """What everybody was told so far is printed when it does not become so."""
        try:
            wait_until(is_so, what, timeout_s)
        finally:
            for notice in self.manager.webhook.notices():
                print(notice)  # pytest shows it where the test fails


@contextmanager
def on_duty(folder: Path, factor: float) -> Iterator[Duty]:
    """An Alertmanager with the shipped routes and inhibition; nobody tells it anything yet."""
    routes = hastened(asset("alerts/alertmanager.yml").read_text(), factor)
    folder.mkdir(parents=True)
    with alertmanager.running(folder, lambda url: routes_to(routes, url)) as manager:
        yield Duty(manager)


@contextmanager
def watching(
    folder: Path,
    duty: Duty,
    sidecars: Sequence[str],
    factor: float,
    *,
    silence: bool = True,
    resend_s: float = RESEND_S,
) -> Iterator[Prometheus]:
    """A Prometheus with the shipped rules that finds a job's sidecars through these (host:port).

    silence: whether the time for which a node has to be silent is divided too. resend_s: how often
    Prometheus repeats what still fires.
    """
    export(folder)
    for path in folder.glob("rules/*.yaml"):
        rules = path.read_text()
        shorter = hastened(rules, factor)
        path.write_text(shorter if silence else with_silences_of(rules, shorter))
    shipped = hastened(asset("deploy/prometheus/prometheus.yml").read_text(), factor)
    told = duty.manager.url.removeprefix("http://")
    config = prometheus_settings(shipped, sidecars, told)
    with prometheus_server.running(folder, config, resend_s) as prometheus:
        yield prometheus


def with_silences_of(shipped: str, shorter: str) -> str:
    """The shorter rules, in which a node has to be silent for as long as in the shipped ones."""
    kept = iter(_SILENCE.findall(shipped))
    return _SILENCE.sub(lambda _: next(kept), shorter)


def export(folder: Path) -> None:
    """As a person does it."""
    command = [sys.executable, "-m", "holdfast_sidecar.cli.main", "alerts", "export"]
    subprocess.run([*command, f"--out={folder}"], check=True, capture_output=True, timeout=60)
