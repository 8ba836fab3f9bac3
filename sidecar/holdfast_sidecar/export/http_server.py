"""The sockets under the routes: one thread for each caller, few callers, little patience."""

from __future__ import annotations

import contextlib
import errno
import gzip
import io
import logging
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any, Protocol

from holdfast_sidecar.config.addresses import parse_listen
from holdfast_sidecar.config.settings import BadInput
from holdfast_sidecar.export.access import Protection
from holdfast_sidecar.export.state import TickState
from holdfast_sidecar.linux.threads import start_needed_thread

logger = logging.getLogger(__name__)


# What the sidecar's server asks of whoever answers a path. Plain data in, plain data out.

TEXT = "text/plain; charset=utf-8"
JSON = "application/json"


@dataclass(frozen=True)
class HttpRequest:
    """Somebody asks. Only GET and HEAD come this far."""

    path: str
    """Without the query, as it came."""
    query: str = ""
    """After the `?`; not taken apart."""
    accept: str = ""
    """The Accept header."""
    is_known: bool = True
    """The caller showed the token, or none is asked for. Only an open route ever sees False."""
    is_scrape: bool = False
    """It comes from a Prometheus, or from what scrapes like one: they say how long they wait."""
    caller: str = ""
    """Its address, without the port."""


@dataclass(frozen=True)
class Response:
    """What is sent back. The server adds the length, and compresses for those who understand it."""

    body: bytes
    content_type: str = TEXT
    status: HTTPStatus = HTTPStatus.OK
    headers: Mapping[str, str] = field(default_factory=dict)


class Route(Protocol):
    """Answers one path. Asked from several threads at once, beside the loop: it only reads."""

    @property
    def path(self) -> str:
        """Which one, e.g. `/metrics`; compared whole."""

    @property
    def is_open(self) -> bool:
        """Whether those without the token are answered too; then nothing of the job may be told."""

    def answer(self, request: HttpRequest, picture: TickState | None) -> Response:
        """The answer, out of the newest picture; None: there was no tick yet."""


class TickListener(Protocol):
    """Hears every picture, once a tick, in the loop's own thread: it must be quick."""

    def hear(self, picture: TickState) -> None:
        """One more."""


# What one caller may take of this process: time, bytes, one of a few threads.

PATIENCE_S = 5.0
"""For a handshake, for the whole request, and for taking the answer: half of Prometheus' own
scrape timeout (10 s). A caller that is slower is in no state to scrape."""

MOST_BYTES = 16 * 1024
"""Of a request with all its headers; Prometheus sends half a kilobyte, and nobody sends a body."""

MOST_CALLERS = 16
"""At a time: a few Prometheus servers, a few people's pages. For one more, whoever has not said for
longest what it wants is sent away, so that nobody who connects and says nothing keeps others out;
where all have asked, it is that one more."""

ROOM_S = 0.2
"""So long the thread of one that was sent away may take to end: it only has to wake."""

PIECE = 2**14
"""Of an answer, written at a time: as much as TLS puts into a record."""


class LimitedReader(io.RawIOBase):
    """Reads a request: so many bytes and so long in all, however they come."""

    def __init__(
        self, connection: socket.socket, most: int = MOST_BYTES, patience_s: float = PATIENCE_S
    ) -> None:
        self._connection = connection
        self._left = most
        self._until_s = time.monotonic() + patience_s

    @property
    def is_exhausted(self) -> bool:
        """Whether there was more than anybody has to ask."""
        return self._left == 0

    def readable(self) -> bool:
        """Yes."""
        return True

    def readinto(self, buffer: object) -> int:
        """Raises TimeoutError when the time is over."""
        left_s = self._until_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("the request took too long")
        self._connection.settimeout(left_s)
        room = memoryview(buffer)[: self._left]  # type: ignore[arg-type]
        count = self._connection.recv_into(room) if len(room) else 0
        self._left -= count
        return count


class LimitedWriter(io.RawIOBase):
    """Writes an answer: so long in all from its first byte on, however slowly it is taken."""

    def __init__(self, connection: socket.socket, patience_s: float = PATIENCE_S) -> None:
        self._connection = connection
        self._patience_s = patience_s
        self._until_s: float | None = None

    def writable(self) -> bool:
        """Yes."""
        return True

    def write(self, content: Any) -> int:
        """All of it. Raises TimeoutError when the time is over."""
        if self._until_s is None:
            self._until_s = time.monotonic() + self._patience_s
        view = memoryview(content)
        for start in range(0, len(view), PIECE):
            left_s = self._until_s - time.monotonic()
            if left_s <= 0:
                raise TimeoutError("the answer was taken too slowly")
            self._connection.settimeout(left_s)
            self._connection.sendall(view[start : start + PIECE])
        return len(view)


class Silent:
    """Callers that have not said yet what they want, in the order in which they came."""

    def __init__(self) -> None:
        self._connections: dict[int, socket.socket] = {}
        self._lock = threading.Lock()

    def add(self, connection: socket.socket) -> None:
        """One more."""
        with self._lock:
            self._connections[id(connection)] = connection

    def discard(self, connection: socket.socket) -> None:
        """It has asked, or is gone."""
        with self._lock:
            self._connections.pop(id(connection), None)

    def send_away_first(self) -> bool:
        """Whoever came first, so that its thread ends; False: there is none."""
        with self._lock:
            first = next(iter(self._connections), None)
            if first is None:
                return False
            connection = self._connections.pop(first)
            with contextlib.suppress(OSError):
                # Not what ssl makes of it, which would take the keys from under that thread.
                socket.socket.shutdown(connection, socket.SHUT_RDWR)
        return True


# Answers made smaller for those who can make them whole again.

LEAST_BYTES = 1024
"""A packet's worth: below it nothing is won."""

LEVEL = 1
"""The page is the same words over and over: the first level brings most of it, in a third of the
time that the sixth takes."""


def accepts_gzip(accept_encoding: str) -> bool:
    """Whether this Accept-Encoding header takes gzip."""
    for part in accept_encoding.split(","):
        name, _, weight = part.partition(";")
        if name.strip().lower() in ("gzip", "*"):
            return weight.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


def compress(body: bytes) -> bytes:
    """The body as gzip; the same for the same body."""
    return gzip.compress(body, LEVEL, mtime=0)


EVERYWHERE_6 = "::"

MISDIRECTED = Response(
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

    def start(self, answer: Callable[[HttpRequest], Response]) -> None:
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

    answer: Callable[[HttpRequest], Response]

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
            HttpRequest(path, query, accept, is_known, is_scrape, self.client_address[0])
        )
        self._send(answer, with_body)

    def _send(self, answer: Response, with_body: bool) -> None:
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
