"""A real Prometheus for tests, on a loopback port, with nothing but what it is given."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from tests.servers import required

from holdfast_sidecar.server.parent_death import die_with


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
def running(folder: Path, config: str, *flags: str) -> Iterator[Prometheus]:
    """One with this configuration (mark the test prometheus)."""
    program = required("prometheus")
    folder.mkdir(parents=True, exist_ok=True)
    path, log = folder / "prometheus.yml", folder / "prometheus.log"
    path.write_text(config)
    address = f"127.0.0.1:{free_port()}"
    with log.open("wb") as output:
        child = subprocess.Popen(
            [
                program,
                f"--config.file={path}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address={address}",
                *flags,
            ],
            stdout=output,
            stderr=output,
            preexec_fn=partial(die_with, os.getpid()),
        )
    try:
        made = Prometheus(address, log, child)
        _wait_until_ready(made, child)
        yield made
    finally:
        end(child)


def end(child: subprocess.Popen[bytes], patience_s: float = 10.0) -> None:
    """Ask it to go; one that does not, as on a loaded machine, is killed."""
    child.send_signal(signal.SIGTERM)
    try:
        child.wait(patience_s)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def free_port() -> int:
    """One that nobody listened on a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_until_ready(made: Prometheus, child: subprocess.Popen[bytes]) -> None:
    until_s = time.monotonic() + 20.0
    while time.monotonic() < until_s and child.poll() is None:
        try:
            with urllib.request.urlopen(f"http://{made.address}/-/ready", timeout=1):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.05)
    raise AssertionError(f"Prometheus does not become ready: {made.log.read_text()}")
