"""Where Alertmanager's receivers post to: what came, for whom, and when."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Notice:
    """One that was posted. at_s: CLOCK_MONOTONIC; receiver: as the routes call it."""

    at_s: float
    receiver: str
    body: dict[str, Any]

    @property
    def is_firing(self) -> bool:
        """False: it tells that all of it is over."""
        return bool(self.body["status"] == "firing")

    @property
    def alerts(self) -> list[str]:
        """Those of it that fire, by name."""
        firing = [one for one in self.body["alerts"] if one["status"] == "firing"]
        return sorted(one["labels"]["alertname"] for one in firing)

    def says(self, word: str) -> bool:
        """Whether its labels or words have it."""
        told = ({**one["labels"], **one["annotations"]} for one in self.body["alerts"])
        return any(word in text for one in told for text in one.values())


@dataclass
class Webhook:
    """All that came so far."""

    url: str
    notices: list[Notice] = field(default_factory=list)

    def firing(self, receiver: str) -> list[Notice]:
        """What this receiver was told that something is wrong."""
        told = list(self.notices)
        return [one for one in told if one.receiver == receiver and one.is_firing]


@contextmanager
def listening() -> Iterator[Webhook]:
    """On a port of its own, until the end of the block."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    webhook = Webhook(f"http://127.0.0.1:{server.server_address[1]}")
    server.notices = webhook.notices  # type: ignore[attr-defined]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield webhook
    finally:
        server.shutdown()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        at_s = time.monotonic()
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        notices: list[Notice] = self.server.notices  # type: ignore[attr-defined]
        notices.append(Notice(at_s, self.path.strip("/"), body))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Nobody reads along."""
