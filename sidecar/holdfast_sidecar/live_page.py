"""The page at `/`: its files joined into one answer, which asks nobody else for anything.

It tells nothing of the job, so that it is open; what it shows it gets from `/live.json`.
"""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from holdfast_sidecar.performance.goodput.summary import IN_VIEWS
from holdfast_sidecar.picture import Picture
from holdfast_sidecar.serving.route import Answer, Request

HTML = "text/html; charset=utf-8"

FILES = Path(__file__).with_name("live") / "page"

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

    def answer(self, request: Request, picture: Picture | None) -> Answer:
        """The same for everybody."""
        return Answer(document(), HTML, headers=security())


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
