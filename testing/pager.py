"""Who is on call in the demonstration: a webhook on loopback, which also serves the runbooks."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import TCPServer
from typing import Any

# Configurations of Prometheus and Alertmanager, made of the shipped ones. Pure.
#
# As text, since a training environment need not have a YAML library. What this relies on, tests
# check: Prometheus' file ends with the service discoveries, Alertmanager's with the receivers.

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


# What Alertmanager told a webhook, and who was told of what. Pure.


@dataclass(frozen=True)
class Alert:
    """One alert of a notice, as people read it."""

    name: str
    run: str
    node: str
    """Empty: it is about the whole run."""
    is_firing: bool
    summary: str
    description: str
    runbook: str


@dataclass(frozen=True)
class Notice:
    """One call of the webhook."""

    receiver: str
    is_firing: bool
    """False: all of it is over."""
    at_unix_s: float
    alerts: tuple[Alert, ...]

    def is_about(self, run: str) -> bool:
        """Whether an alert of this run is in it."""
        return any(alert.run == run for alert in self.alerts)

    @property
    def names(self) -> list[str]:
        """Of the alerts that still fire."""
        return sorted(alert.name for alert in self.alerts if alert.is_firing)


def parse_notice(receiver: str, body: bytes, at_unix_s: float) -> Notice | None:
    """Alertmanager's JSON (version 4); None where it is something else."""
    try:
        return notice_of(receiver, json.loads(body), at_unix_s)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def notice_of(receiver: str, said: dict[str, Any], at_unix_s: float) -> Notice:
    """The same of what was parsed; raises what a dictionary of another shape does."""
    told = said["alerts"]
    alerts = tuple(_alert(one["status"], one["labels"], one["annotations"]) for one in told)
    return Notice(receiver, said["status"] == "firing", at_unix_s, alerts)


def pages(notices: Iterable[Notice], run: str) -> list[Notice]:
    """What woke somebody up for this run."""
    return [one for one in _to(notices, PAGER, run) if one.is_firing]


def tickets(notices: Iterable[Notice], run: str) -> list[Notice]:
    """What somebody reads in the morning."""
    return [one for one in _to(notices, TICKETS, run) if one.is_firing]


def all_clear(notices: Iterable[Notice], run: str) -> Notice | None:
    """The last word of what was paged: it is over."""
    over = [one for one in _to(notices, PAGER, run) if not one.is_firing]
    return over[-1] if over else None


def watchdogs(notices: Iterable[Notice]) -> list[float]:
    """When the dead man's switch was heard."""
    return [one.at_unix_s for one in notices if one.receiver == WATCHDOG and one.is_firing]


def _to(notices: Iterable[Notice], receiver: str, run: str) -> list[Notice]:
    return [one for one in notices if one.receiver == receiver and one.is_about(run)]


def _alert(status: str, labels: dict[str, str], annotations: dict[str, str]) -> Alert:
    return Alert(
        name=labels["alertname"],
        run=labels.get("run", ""),
        node=labels.get("node", ""),
        is_firing=status == "firing",
        summary=annotations.get("summary", ""),
        description=annotations.get("description", ""),
        runbook=annotations.get("runbook_url", ""),
    )


PATIENCE_S = 5.0
MOST_BYTES = 1_000_000
"""A notice of a hundred alerts with long descriptions has a tenth of it."""
RUNBOOKS = "/runbooks/"


class Receiver:
    """Listens from the beginning, so that its address is known; hears from `start` until `close`.

    runbooks: a folder; its `*.md` are served, and nothing else of the disk.
    """

    def __init__(self, runbooks: Path) -> None:
        self._listening = _Listening(runbooks)
        self._thread = threading.Thread(
            target=self._listening.serve_forever, name="webhook", daemon=True
        )

    @property
    def url(self) -> str:
        """Where it is, without a slash at the end."""
        return f"http://127.0.0.1:{self._listening.server_address[1]}"

    @property
    def runbooks_url(self) -> str:
        """Where the runbooks are."""
        return f"{self.url}{RUNBOOKS}".rstrip("/")

    def start(self) -> None:
        """Hear what comes."""
        self._thread.start()

    def heard(self) -> tuple[Notice, ...]:
        """All notices so far, in their order."""
        return tuple(self._listening.notices)

    def close(self) -> None:
        """Hear nothing more."""
        if self._thread.is_alive():
            self._listening.shutdown()
        self._listening.server_close()


class _Listening(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, runbooks: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.runbooks = runbooks
        self.notices: list[Notice] = []

    def server_bind(self) -> None:
        """Bind alone: HTTPServer also asks DNS for our name, which may take it half a minute."""
        TCPServer.server_bind(self)


class _Handler(BaseHTTPRequestHandler):
    server: _Listening
    timeout = PATIENCE_S
    server_version, sys_version = "holdfast", ""

    def do_POST(self) -> None:
        size = self.headers.get("Content-Length", "")
        if not size.isdecimal() or int(size) > MOST_BYTES:
            self.send_error(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
            return
        body = self.rfile.read(int(size))
        notice = parse_notice(self.path.strip("/"), body, time.time())
        if notice is None:
            self.send_error(HTTPStatus.BAD_REQUEST)
            return
        self.server.notices.append(notice)
        self._answer(b"")

    def do_GET(self) -> None:
        wanted = self.path.removeprefix(RUNBOOKS)
        known = {path.name: path for path in self.server.runbooks.glob("*.md")}
        if not self.path.startswith(RUNBOOKS) or wanted not in known:
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        self._answer(known[wanted].read_bytes())

    def log_message(self, *_: object) -> None:
        pass

    def _answer(self, body: bytes) -> None:
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
