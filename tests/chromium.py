"""Chromium for tests of pages: Debian's, driven by playwright, which brings none of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests import servers
from tests.extras import package

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

QUIETLY = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
"""A browser of its own accord asks its makers for this and that; root can't have its sandbox."""


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser; skipped without one on a laptop, a failure in CI."""
    program = servers.required("chromium")
    with package("playwright.sync_api").sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=list(QUIETLY))
        yield browser
        browser.close()


@dataclass
class Visit:
    """A page in a window of its own, and what it did besides being shown."""

    page: Page
    complaints: list[str] = field(default_factory=list)
    """Errors on the console, and scripts that failed."""
    asked: list[str] = field(default_factory=list)
    """Addresses that it asked for."""

    @property
    def hosts(self) -> set[str]:
        """Whom it asked."""
        return {address.split("/")[2] for address in self.asked if "://" in address}


@contextmanager
def visit(browser: Browser, **settings: Any) -> Iterator[Visit]:
    """A fresh window; go where you want."""
    context = browser.new_context(**{"viewport": {"width": 1200, "height": 900}, **settings})
    made = Visit(context.new_page())
    made.page.set_default_timeout(20_000)
    made.page.on("console", lambda said: _note(made, said))
    made.page.on("pageerror", lambda error: made.complaints.append(f"error: {error}"))
    made.page.on("request", lambda request: made.asked.append(request.url))
    yield made
    context.close()


def _note(made: Visit, said: Any) -> None:
    if said.type == "error":
        made.complaints.append(f"{said.type}: {said.text}")
