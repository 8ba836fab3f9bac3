"""Serves the newest picture as /metrics and /healthz; drawing happens when somebody asks."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from holdfast_sidecar.bad_input import BadInput
from holdfast_sidecar.listening import parse_listen
from holdfast_sidecar.metrics.catalogue import CATALOGUE
from holdfast_sidecar.metrics.drawing import draw, without_former_ranks
from holdfast_sidecar.metrics.entry import Entry
from holdfast_sidecar.metrics.samples import Sample
from holdfast_sidecar.picture import Picture

logger = logging.getLogger(__name__)

STALE_AFTER_S = 10.0
"""A loop that has not ticked for this long (some twenty ticks) is not well."""


@dataclass
class Exporter:
    """Holds the newest picture of one job's node and serves it."""

    job: str
    _picture: Picture | None = None
    _server: ThreadingHTTPServer | None = None
    _registry: CollectorRegistry = field(default_factory=CollectorRegistry)

    def tell(self, picture: Picture) -> None:
        """Take the newest picture (one assignment; a scrape in progress keeps the one it has)."""
        self._picture = picture

    def serve(self, listen: str) -> str:
        """Listen on `host:port` (port 0: any free one) and answer the address that it became."""
        self._registry.register(_Collector(self))
        host, port = parse_listen(listen)
        try:
            self._server = _Server((host, port), _handler(self))
        except OSError as error:
            raise BadInput(
                f"can't listen on {listen}: {error.strerror}; choose another --listen"
            ) from None
        threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True).start()
        return f"{host}:{self._server.server_address[1]}"

    def close(self) -> None:
        """Stop serving."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()

    def page(self) -> bytes:
        """The /metrics page."""
        return generate_latest(self._registry)

    def health(self, now_s: float) -> dict[str, Any]:
        """What /healthz says. `ok` is about this sidecar, not about the job."""
        picture = self._picture
        if picture is None:
            return {"ok": False, "why": "no tick yet"}
        age_s = now_s - picture.moment.now_s
        return {
            "ok": age_s < STALE_AFTER_S,
            "store_up": picture.orders.store_up,
            "leader": picture.orders.lease.candidate,
            "is_leader": picture.orders.is_leader,
            "attempt": picture.ranks.attempt,
            "ranks": len(without_former_ranks(picture).ranks.local),
            "findings": [finding.kind.value for finding in picture.findings],
            "last_tick_age_s": round(age_s, 3),
        }

    def samples(self) -> list[Sample]:
        """Everything to be told now."""
        return [] if self._picture is None else draw(self._picture, self.job)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 16

    def server_bind(self) -> None:
        """Bind alone: HTTPServer also asks DNS for our name, which may take it half a minute."""
        TCPServer.server_bind(self)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A scraper that hung up is nothing to print a traceback for."""
        logger.debug("a request from %s failed", client_address, exc_info=True)


@dataclass(eq=False)
class _Collector:
    """Groups samples into families in the catalogue's order; an unknown name is a KeyError."""

    exporter: Exporter

    def collect(self) -> Iterator[Metric]:
        """Every family of the catalogue that has samples, or that is a counter without labels."""
        by_name: dict[str, list[Sample]] = {entry.name: [] for entry in CATALOGUE}
        for sample in self.exporter.samples():
            by_name[sample.name].append(sample)
        for entry in CATALOGUE:
            if by_name[entry.name]:
                yield family(entry, by_name[entry.name])

    def describe(self) -> list[Metric]:
        """Nothing: registering must not ask for samples."""
        return []


def family(entry: Entry, samples: list[Sample]) -> Metric:
    """Samples of one entry as prometheus_client's family. Labels must be the catalogue's."""
    if entry.kind == "summary":
        summary = SummaryMetricFamily(entry.name, entry.help, labels=entry.labels)
        for sample in samples:
            values = [sample.labels[label] for label in entry.labels]
            summary.add_metric(values, sample.count or 0, sample.value)
        return summary
    made: CounterMetricFamily | GaugeMetricFamily
    if entry.kind == "counter":
        made = CounterMetricFamily(entry.name, entry.help, labels=entry.labels)
    else:
        made = GaugeMetricFamily(entry.name, entry.help, labels=entry.labels)
    for sample in samples:
        made.add_metric([sample.labels[label] for label in entry.labels], sample.value)
    return made


def _handler(exporter: Exporter) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 5.0  # a client that sends nothing does not keep its thread

        def do_GET(self) -> None:
            if self.path.partition("?")[0] == "/metrics":
                self._answer(HTTPStatus.OK, CONTENT_TYPE_LATEST, exporter.page())
            elif self.path == "/healthz":
                health = exporter.health(time.monotonic())
                status = HTTPStatus.OK if health["ok"] else HTTPStatus.SERVICE_UNAVAILABLE
                self._answer(status, "application/json", json.dumps(health).encode())
            else:
                self._answer(HTTPStatus.NOT_FOUND, "text/plain", b"/metrics or /healthz\n")

        def _answer(self, status: HTTPStatus, kind: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - http.server's name
            logger.debug(format, *args)

    return Handler
