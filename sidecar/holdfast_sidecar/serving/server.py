"""The sockets under the routes: one thread for each caller, few callers, little patience."""

from __future__ import annotations

import errno
import io
import logging
import socket
import ssl
import sys
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any

from holdfast_sidecar.config.addresses import parse_listen
from holdfast_sidecar.config.settings import BadInput
from holdfast_sidecar.linux.threads import start_needed_thread
from holdfast_sidecar.serving.compression import LEAST_BYTES, accepts_gzip, compress
from holdfast_sidecar.serving.limits import (
    MOST_CALLERS,
    PATIENCE_S,
    ROOM_S,
    LimitedReader,
    LimitedWriter,
    Silent,
)
from holdfast_sidecar.serving.protection import Protection
from holdfast_sidecar.serving.route import Answer, Request

logger = logging.getLogger(__name__)

EVERYWHERE_6 = "::"

MISDIRECTED = Answer(
    b"ask for 127.0.0.1 or localhost, or name this sidecar in sidecar.advertise\n",
    status=HTTPStatus.MISDIRECTED_REQUEST,
)
"""To whoever asks by a name that is not ours; see `hosts`."""

SCRAPE = "X-Prometheus-Scrape-Timeout-Seconds"
"""The header that only scrapers send."""


class PortTaken(BadInput):
    """Somebody listens there already."""


class Server:
    """Bound from the beginning, so that its port is known; answers from `start` until `close`."""

    def __init__(self, listen: str, protection: Protection | None = None) -> None:
        try:
            self._listening = _Listening(parse_listen(listen), protection or Protection())
        except OSError as error:
            kind = PortTaken if error.errno == errno.EADDRINUSE else BadInput
            raise kind(
                f"can't listen on {listen}: {error.strerror}; choose another --listen"
                " (sidecar.listen=127.0.0.1:0 takes any port that is free)"
            ) from None
        self.port = int(self._listening.server_address[1])
        self._is_started = False

    def start(self, answer: Callable[[Request], Answer]) -> None:
        """Answer whoever asks, those too that have been waiting since it was bound. Raises BadInput
        where no thread can be started."""
        self._listening.answer = answer
        start_needed_thread(self._listening.serve_forever, "metrics")
        self._is_started = True

    def close(self) -> None:
        """Stop; whoever is being answered may be cut off."""
        if self._is_started:
            self._listening.shutdown()
        self._listening.server_close()


class _Listening(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = MOST_CALLERS

    answer: Callable[[Request], Answer]

    def __init__(self, address: tuple[str, int], protection: Protection) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self.protection = protection
        self.silent = Silent()
        self._room = threading.BoundedSemaphore(MOST_CALLERS)
        self._last_error = ""
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        """Bind alone: HTTPServer also asks DNS for our name, which may take it half a minute."""
        if self.server_address[0] == EVERYWHERE_6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        TCPServer.server_bind(self)

    def process_request(self, request: Any, client_address: Any) -> None:
        """In a thread of its own, or not at all."""
        if not self._has_room():
            logger.debug("sent %s away: %d are being answered", client_address, MOST_CALLERS)
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # no more threads
            self._room.release()
            raise

    def _has_room(self) -> bool:
        if self._room.acquire(blocking=False):
            return True
        return self.silent.send_away_first() and self._room.acquire(timeout=ROOM_S)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """What that thread does."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Agree on keys first, where there is a certificate: here nobody else waits for it."""
        request.settimeout(PATIENCE_S)
        if self.protection.certificate is None:
            self._hear(request, client_address)
            return
        context = self.protection.certificate.context()
        with context.wrap_socket(
            request, server_side=True, do_handshake_on_connect=False
        ) as secured:
            self._hear(secured, client_address)

    def _hear(self, connection: Any, client_address: Any) -> None:
        self.silent.add(connection)
        try:
            if isinstance(connection, ssl.SSLSocket):
                connection.do_handshake()
            super().finish_request(connection, client_address)
        finally:
            self.silent.discard(connection)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A scraper that hung up is nothing to print a traceback for; an error of ours is, once."""
        error = sys.exc_info()[1]
        if isinstance(error, OSError):
            logger.debug("a request from %s failed", client_address, exc_info=True)
        elif repr(error) != self._last_error:
            self._last_error = repr(error)
            logger.error("can't answer %s", client_address, exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    server: _Listening
    server_version, sys_version = "holdfast", ""

    def setup(self) -> None:
        super().setup()
        self.rfile.close()  # that one would read for as long as somebody writes
        self._reader = LimitedReader(self.connection)
        self.rfile = io.BufferedReader(self._reader)
        self.wfile = LimitedWriter(self.connection)  # type: ignore[assignment]

    def do_GET(self) -> None:
        self._reply(with_body=True)

    def do_HEAD(self) -> None:
        self._reply(with_body=False)

    def _reply(self, with_body: bool) -> None:
        self.server.silent.discard(self.connection)
        if self._reader.is_exhausted:
            self.send_error(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
            return
        if not self.server.protection.is_meant(self.headers.get("Host", "")):
            self._send(MISDIRECTED, with_body)
            return
        path, _, query = self.path.partition("?")
        is_known = self.server.protection.knows(self.headers.get("Authorization", ""))
        accept = self.headers.get("Accept", "")
        is_scrape = SCRAPE in self.headers
        answer = self.server.answer(
            Request(path, query, accept, is_known, is_scrape, self.client_address[0])
        )
        self._send(answer, with_body)

    def _send(self, answer: Answer, with_body: bool) -> None:
        body, more = answer.body, dict(answer.headers)
        if len(body) >= LEAST_BYTES:
            more["Vary"] = "Accept-Encoding"
            if accepts_gzip(self.headers.get("Accept-Encoding", "")):
                body, more["Content-Encoding"] = compress(body), "gzip"
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.content_type)
        self.send_header("Content-Length", str(len(body)))
        for name, value in more.items():
            self.send_header(name, value)
        self.end_headers()
        if with_body:
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - http.server's name
        logger.debug(format, *args)
