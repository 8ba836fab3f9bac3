"""What the sidecar's server asks of whoever answers a path. Plain data in, plain data out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Protocol

from holdfast_sidecar.picture import Picture

TEXT = "text/plain; charset=utf-8"
JSON = "application/json"


@dataclass(frozen=True)
class Request:
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
class Answer:
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

    def answer(self, request: Request, picture: Picture | None) -> Answer:
        """The answer, out of the newest picture; None: there was no tick yet."""


class Listener(Protocol):
    """Hears every picture, once a tick, in the loop's own thread: it must be quick."""

    def hear(self, picture: Picture) -> None:
        """One more."""
