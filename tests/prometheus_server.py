"""A real Prometheus for tests, on a loopback port, with nothing but what it is given."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from testing.alerting import RESEND_S, prometheus_command, start
from tests.servers import required


@dataclass(frozen=True)
class Prometheus:
    """One that runs; `address` is host:port."""

    address: str
    log: Path
    process: subprocess.Popen[bytes] = field(repr=False)

    def query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """Labels and value of every series that the expression gives now."""
        found = self._ask("query", query=expression)
        return [(one["metric"], float(one["value"][1])) for one in found]

    def series_over(self, expression: str, seconds: float) -> int:
        """How many series it gives over this time until now."""
        now = time.time()
        return len(
            self._ask(
                "query_range", query=expression, start=now - seconds, end=now, step=seconds / 60
            )
        )

    def _ask(self, route: str, **asked: object) -> list[dict[str, Any]]:
        words = urllib.parse.urlencode(asked)
        with urllib.request.urlopen(
            f"http://{self.address}/api/v1/{route}?{words}", timeout=5
        ) as a:
            found: list[dict[str, Any]] = json.loads(a.read())["data"]["result"]
        return found

    def wait_for(
        self, expression: str, holds: Callable[[dict[str, float]], bool], timeout_s: float = 20.0
    ) -> dict[str, float]:
        """The values by node ("" where there is none), once they are as they should be."""
        until_s = time.monotonic() + timeout_s
        seen: dict[str, float] = {}
        while time.monotonic() < until_s:
            seen = {labels.get("node", ""): value for labels, value in self.query(expression)}
            if holds(seen):
                return seen
            time.sleep(0.1)
        raise AssertionError(f"{expression} gave {seen} for {timeout_s} s; {self.log.read_text()}")


@contextmanager
def running(folder: Path, config: str, resend_s: float = RESEND_S) -> Iterator[Prometheus]:
    """One with this configuration (mark the test prometheus); it repeats alerts so often."""
    program = required("prometheus")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "prometheus.yml").write_text(config)
    command = partial(prometheus_command, program, folder, resend_s)
    log = folder / "prometheus.log"
    daemon = start("Prometheus", command, log)
    try:
        yield Prometheus(daemon.address, log, daemon.process)
    finally:
        daemon.end()
