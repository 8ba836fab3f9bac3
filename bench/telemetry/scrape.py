"""What one scrape costs, beside prometheus_client alone that serves the same series as constants.

The two take turns, each in a process of its own and over HTTP.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

from bench.benchmark import NotRun, Sample
from bench.telemetry.fakes import WatchedNode

CONSTANTS = Path(__file__).parent / "programs" / "constants.py"
ROUNDS = 60
WARMED_UP_S = 10.0


def measure() -> list[Sample]:
    """Sixty scrapes of each."""
    with WatchedNode() as node:
        time.sleep(WARMED_UP_S)  # until what is read rarely was read once
        page = node.page()
        file = node.directory / "page.prom"
        file.write_text(page)
        constants = subprocess.Popen(
            [sys.executable, str(CONSTANTS), str(file)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert constants.stdout is not None
            port = constants.stdout.readline().strip()
            if not port:
                raise NotRun("the server of constants did not start")
            address = f"http://127.0.0.1:{port}/metrics"
            return [_compare(page, node.page, lambda: _get(address))]
        finally:
            constants.kill()
            constants.wait()


def _compare(page: str, ours: Callable[[], str], theirs: Callable[[], str]) -> Sample:
    if series(theirs()) != series(page):
        raise NotRun("the constants are not as many series as the page")
    took: tuple[list[float], list[float]] = ([], [])
    for number in range(ROUNDS):
        for which in (0, 1) if number % 2 else (1, 0):
            started = time.perf_counter()
            (ours, theirs)[which]()
            took[which].append((time.perf_counter() - started) * 1e3)
    return {
        "series": series(page),
        "bytes": len(page),
        "page_ms": statistics.median(took[0]),
        "constant_ms": statistics.median(took[1]),
        "page_all_ms": took[0],
        "constant_all_ms": took[1],
    }


def series(page: str) -> int:
    """How many lines of it carry a value."""
    return sum(bool(line) and not line.startswith("#") for line in page.splitlines())


def _get(address: str) -> str:
    with urllib.request.urlopen(address, timeout=10) as answer:
        text: str = answer.read().decode()
    return text
