"""A real Alertmanager on loopback with the shipped routes, whose receivers are webhooks of ours."""

from __future__ import annotations

import json
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml
from testing.alerting import alertmanager_command, start
from testing.pager import Notice, notice_of
from tests.servers import required

ALERTS = Path(__file__).parents[3] / "alerts"
PROGRAM = "prometheus-alertmanager"

GROUP_WAIT_S = 2
"""In place of 30 s, and as much longer than the lag between cause and symptom in these tests."""


@dataclass
class Webhook:
    """What each receiver was sent."""

    server: ThreadingHTTPServer
    sent: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    heard_unix_s: list[float] = field(default_factory=list)
    """When each of them came."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def notices(self) -> list[Notice]:
        """All of it, in its order."""
        heard = zip(list(self.sent), self.heard_unix_s, strict=False)
        return [notice_of(receiver, body, at) for (receiver, body), at in heard]

    def names(self, receiver: str, run: str, status: str = "firing") -> list[list[str]]:
        """The alerts about a run in each notification that has any; one may be about several."""
        return self._told("alertname", receiver, run, status)

    def nodes(self, receiver: str, run: str) -> list[list[str]]:
        """The nodes whose alerts fire, likewise."""
        return self._told("node", receiver, run, "firing")

    def _told(self, label: str, receiver: str, run: str, status: str) -> list[list[str]]:
        found = [
            sorted(
                one["labels"].get(label, "")
                for one in body["alerts"]
                if one["status"] == status and one["labels"].get("run", "") == run
            )
            for to, body in list(self.sent)
            if to == receiver and body["status"] == status
        ]
        return [values for values in found if values]


@dataclass(frozen=True)
class Alertmanager:
    """A running one."""

    url: str
    webhook: Webhook

    def post(self, *labels: Mapping[str, str], over: bool = False) -> None:
        """Alerts that fire, or are over."""
        now = datetime.now(UTC).isoformat()
        body = [{"labels": dict(one), **({"endsAt": now} if over else {})} for one in labels]
        request = urllib.request.Request(
            f"{self.url}/api/v2/alerts",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=5) as answer:
            assert answer.status == 200

    def is_ready(self) -> bool:
        """Whether it answers."""
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=1) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


def _shortened(url: str) -> str:
    return str(yaml.safe_dump(_with_webhooks(url)))


@contextmanager
def running(folder: Path, routes: Callable[[str], str] = _shortened) -> Iterator[Alertmanager]:
    """Until the end of the block; skipped where it is not installed, which is a failure in CI.

    routes: URL of the webhook -> configuration.
    """
    program = required(PROGRAM)
    with _listening() as webhook:
        (folder / "alertmanager.yml").write_text(routes(webhook.url))
        command = partial(alertmanager_command, program, folder)
        daemon = start("Alertmanager", command, folder / "log")
        try:
            yield Alertmanager(daemon.url, webhook)
        finally:
            daemon.end()


def _with_webhooks(url: str) -> dict[str, Any]:
    """The shipped configuration; only where it tells, and how long it waits, is another."""
    document: dict[str, Any] = yaml.safe_load((ALERTS / "alertmanager.yml").read_text())
    document["route"] |= {"group_wait": f"{GROUP_WAIT_S}s", "group_interval": "1s"}
    for route in document["route"]["routes"]:
        if "group_wait" not in route:  # the watchdog has waits of its own
            route.pop("group_interval", None)
    for receiver in document["receivers"]:
        name = receiver["name"]
        hooks = [{"url": f"{url}/{name}", "send_resolved": True}]
        receiver.clear()
        receiver |= {"name": name} if name == "nobody" else {"name": name, "webhook_configs": hooks}
    return document


@contextmanager
def _listening() -> Iterator[Webhook]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            webhook.heard_unix_s.append(time.time())
            webhook.sent.append((self.path.strip("/"), json.loads(body)))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    webhook = Webhook(ThreadingHTTPServer(("127.0.0.1", 0), Handler))
    thread = threading.Thread(target=webhook.server.serve_forever, daemon=True)
    thread.start()
    try:
        yield webhook
    finally:
        webhook.server.shutdown()
        webhook.server.server_close()


def rest(seconds: float) -> None:
    """Long enough that what was going to be sent has been."""
    time.sleep(seconds)
