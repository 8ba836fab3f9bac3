"""The page at `/`: its files joined into one answer, which asks nobody else for anything.

It tells nothing of the job, so that it is open; what it shows it gets from `/live.json`.
"""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from holdfast_sidecar.export.http_server import JSON, HttpRequest, Response
from holdfast_sidecar.export.live.build import context_of, gather, told_now
from holdfast_sidecar.export.live.context import PATIENCE_S
from holdfast_sidecar.export.live.heatmap import HeatMemory
from holdfast_sidecar.export.live.packing import pack
from holdfast_sidecar.export.live.view import LiveView
from holdfast_sidecar.export.state import TickState
from holdfast_sidecar.performance.goodput.summary import IN_VIEWS

HTML = "text/html; charset=utf-8"

FILES = Path(__file__).with_name("page")

SCRIPTS = (
    "elements.js",
    "units.js",
    "unpacking.js",
    "colours.js",
    "head.js",
    "heat_image.js",
    "heat_map.js",
    "account.js",
    "incidents.js",
    "tables.js",
    "watching.js",
)
"""In the order in which they need one another."""

STYLE_PLACE, SCRIPT_PLACE = "/* page.css */", "/* scripts */"


@dataclass(frozen=True)
class LivePage:
    """A route of the sidecar's server."""

    path: str = "/"
    is_open: bool = True

    def answer(self, request: HttpRequest, picture: TickState | None) -> Response:
        """The same for everybody."""
        return Response(document(), HTML, headers=security())


@cache
def document() -> bytes:
    """The whole page."""
    page = _read("page.html")
    return page.replace(STYLE_PLACE, _style()).replace(SCRIPT_PLACE, _script()).encode()


@cache
def security() -> dict[str, str]:
    """What the browser is told: this script and this style alone, and to ask no other place."""
    policy = (
        "default-src 'none'",
        f"script-src '{_digest(_script())}'",
        f"style-src '{_digest(_style())}'",
        "connect-src 'self'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
    )
    return {
        "Content-Security-Policy": "; ".join(policy),
        "Cache-Control": "no-cache",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
    }


@cache
def _style() -> str:
    return _read("page.css")


@cache
def _script() -> str:
    return "\n".join([f"const CATEGORY_WORDS = {json.dumps(IN_VIEWS)};", *map(_read, SCRIPTS)])


def _read(name: str) -> str:
    return (FILES / name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"sha256-{digest}"


# Remembers what a live view needs of the past, and answers `/live.json`.
#
# Drawn when somebody asks, once a tick at most however many watch.

HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


@dataclass
class LiveTelling:
    """A route and a listener of the sidecar's server."""

    run: str
    patience_s: float = PATIENCE_S
    """After so long without a word a node is silent."""
    path: str = "/live.json"
    is_open: bool = False
    _memory: HeatMemory = field(default_factory=HeatMemory)
    _remembering: threading.Lock = field(default_factory=threading.Lock)
    """Held for moments: the loop's thread waits for it."""
    _drawing: threading.Lock = field(default_factory=threading.Lock)
    _away_since_unix_s: float | None = None
    _drawn_at_s: float = -1.0
    _drawn: bytes = b""

    def hear(self, picture: TickState) -> None:
        """Remember who was how slow; see heat.py for what that takes."""
        orders, now_unix_s = picture.orders, picture.moment.now_unix_s
        if orders.store_up:
            self._away_since_unix_s = None
        elif self._away_since_unix_s is None:
            self._away_since_unix_s = now_unix_s
        if not self._memory.wants(now_unix_s):
            return
        # Half of it is when a node is called lost: who leads next comes to it not much later, and
        # what the last leader said is no news.
        told = told_now(picture, self.patience_s / 2)
        with self._remembering:
            self._memory.follow(now_unix_s, told.ranks, told.world_size, told.step)

    def answer(self, request: HttpRequest, picture: TickState | None) -> Response:
        """The view of the newest tick."""
        return Response(self._json(picture), JSON, headers=HEADERS)

    def _json(self, picture: TickState | None) -> bytes:
        if picture is None:
            return pack(LiveView(run=self.run, light="grey", headline="no tick yet"))
        with self._drawing:
            if self._drawn_at_s != picture.moment.now_s:
                self._drawn = self._draw(picture)
                self._drawn_at_s = picture.moment.now_s
            return self._drawn

    def _draw(self, picture: TickState) -> bytes:
        with self._remembering:
            memory = self._memory.copied()
        scene = context_of(picture, self.run, self._away_since_unix_s, self.patience_s)
        return pack(gather(scene, memory))
