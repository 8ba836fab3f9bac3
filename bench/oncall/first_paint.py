"""How soon the page shows anything, beside an empty page in the same browser from the same server,
and how soon it shows the job. Needs Chromium and playwright.

`python -m bench.oncall.first_paint [RANKS]` prints one JSON object.
"""

from __future__ import annotations

import json
import statistics
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.chromium import QUIETLY
from tests.unit.live.large_job import Job, picture

from holdfast_sidecar.live_page import LivePage, document
from holdfast_sidecar.live_telling import LiveTelling
from holdfast_sidecar.picture import Picture
from holdfast_sidecar.serving.exporter import Exporter
from holdfast_sidecar.serving.route import Answer, Request
from holdfast_sidecar.serving.server import Server

if TYPE_CHECKING:
    from playwright.sync_api import Browser

VISITS = 9
"""Of each page, in turns; the median counts. The first of each is left out: it warms caches."""

GOAL = 3.0
"""First paint of the page against that of an empty one."""

PAINT = """() => new Promise((resolve) => {
  const look = () => {
    const paint = performance.getEntriesByName('first-contentful-paint')[0];
    if (paint) resolve(paint.startTime); else setTimeout(look, 5);
  };
  look();
})"""

SHOWN = """() => new Promise((resolve) => {
  const look = () => {
    const mark = performance.getEntriesByName('shown')[0];
    if (mark) resolve(mark.startTime); else setTimeout(look, 5);
  };
  look();
})"""


@dataclass(frozen=True)
class EmptyPage:
    """A word on nothing."""

    path: str = "/empty"
    is_open: bool = True

    def answer(self, request: Request, picture: Picture | None) -> Answer:
        """The same for everybody."""
        return Answer(b"<!doctype html><title>.</title><p>.", "text/html; charset=utf-8")


def measure(browser: Browser, ranks: int) -> dict[str, Any]:
    """Milliseconds from the beginning of the navigation."""
    telling = LiveTelling("llm")
    server = Server("127.0.0.1:0")
    exporter = Exporter((LivePage(), telling, EmptyPage()), (telling,), server=server)
    for second in range(119):
        exporter.tell(picture(Job(ranks), float(second)))
    exporter.serve()
    address = f"http://127.0.0.1:{server.port}"
    told: dict[str, list[float]] = {"empty": [], "page": [], "job_shown": []}
    try:
        for _ in range(VISITS + 1):
            told["empty"].append(_visit(browser, f"{address}/empty")[0])
            first, shown = _visit(browser, f"{address}/", waits=True)
            told["page"].append(first)
            told["job_shown"].append(shown)
    finally:
        exporter.close()
    return _summed(told, ranks)


def _visit(browser: Browser, address: str, waits: bool = False) -> tuple[float, float]:
    """A window of its own, so that nothing is cached: first paint, and when the job was shown."""
    context = browser.new_context(viewport={"width": 1200, "height": 900})
    page = context.new_page()
    page.goto(address)
    first = float(page.evaluate(PAINT))
    shown = float(page.evaluate(SHOWN)) if waits else 0.0
    context.close()
    return first, shown


def _summed(told: dict[str, list[float]], ranks: int) -> dict[str, Any]:
    middle = {name: statistics.median(values[1:]) for name, values in told.items()}
    ratio = middle["page"] / middle["empty"]
    return {
        "ranks": ranks,
        "visits": VISITS,
        "page_bytes": len(document()),
        **{f"{name}_ms": round(value, 1) for name, value in middle.items()},
        "ratio": round(ratio, 2),
        "is_met": ratio <= GOAL,
    }


def main() -> int:
    """Print what was measured; exit code 1 when the goal was missed."""
    import shutil

    from playwright.sync_api import sync_playwright

    ranks = int(sys.argv[1]) if len(sys.argv) > 1 else 1024
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=list(QUIETLY)
        )
        told = measure(browser, ranks)
        browser.close()
    print(json.dumps(told, indent=2))
    return 0 if told["is_met"] else 1


if __name__ == "__main__":
    sys.exit(main())
