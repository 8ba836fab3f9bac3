"""Who is on call in the demonstration: a webhook on loopback, which also serves the runbooks."""

from __future__ import annotations

import threading
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import TCPServer

from holdfast_sidecar.demo.stack.notices import Notice, parse_notice

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
