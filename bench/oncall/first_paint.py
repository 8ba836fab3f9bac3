"""How soon the page shows anything, beside an empty page in the same browser from the same server,
and how soon it shows the job. Needs Chromium and playwright.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from bench.benchmark import NotRun, Sample

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

VISITS = 9
"""Of each page, in turns; the median counts. The first of each is left out: it warms caches."""

LIMIT_MS = 20_000

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

LOOK = """([name, limit_ms]) => new Promise((resolve) => {
  const look = () => {
    const entry = performance.getEntriesByName(name)[0];
    if (entry) resolve(entry.startTime);
    else if (performance.now() > limit_ms) resolve(-1);
    else setTimeout(look, 5);
  };
  look();
})"""

PAINTED = "first-contentful-paint"
SHOWN = "shown"
"""The page sets this mark itself, once it has drawn the job."""


def visits(site: str) -> Sample:
    """Milliseconds from the beginning of the navigation, of every visit."""
    told: dict[str, list[float]] = {"empty_ms": [], "page_ms": [], "job_shown_ms": []}
    with _chromium() as browser:
        for _ in range(VISITS + 1):
            told["empty_ms"].append(_visit(browser, f"{site}/empty")[0])
            first_ms, shown_ms = _visit(browser, f"{site}/", waits=True)
            told["page_ms"].append(first_ms)
            told["job_shown_ms"].append(shown_ms)
    return {name: values[1:] for name, values in told.items()}


@contextmanager
def _chromium() -> Iterator[Browser]:
    program = shutil.which("chromium")
    if program is None:
        raise NotRun("chromium is not installed")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        raise NotRun("playwright is not installed") from None
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=list(QUIETLY))
        try:
            yield browser
        finally:
            browser.close()


def _visit(browser: Browser, address: str, waits: bool = False) -> tuple[float, float]:
    """A window of its own, so that nothing is cached: first paint, and when the job was shown."""
    context = browser.new_context(viewport={"width": 1200, "height": 900})
    page = context.new_page()
    page.set_default_timeout(LIMIT_MS)
    page.goto(address)
    first_ms = _moment(page, PAINTED)
    shown_ms = _moment(page, SHOWN) if waits else 0.0
    context.close()
    return first_ms, shown_ms


def _moment(page: Page, name: str) -> float:
    at_ms = float(page.evaluate(LOOK, [name, LIMIT_MS]))
    if at_ms < 0:
        raise NotRun(f"the browser told of no {name} within {LIMIT_MS / 1000:g} s")
    return at_ms
