"""Prometheus and Alertmanager as they are installed, on loopback, until the end of a block."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from bench.benchmark import NotRun
from bench.launch.job import free_port
from holdfast_sidecar.server.parent_death import die_with

PROMETHEUS = "prometheus"
ALERTMANAGER = "prometheus-alertmanager"
START_LIMIT_S = 30.0
ASK_LIMIT_S = 120.0
"""As long as Prometheus itself lets a query take (--query.timeout)."""

Series = tuple[dict[str, str], float]


@dataclass(frozen=True)
class Group:
    """A group of rules. took_s: what prometheus_rule_group_last_duration_seconds says, too."""

    name: str
    interval_s: float
    took_s: float
    evaluated_at: str
    failed: int
    """Rules that could not be evaluated."""


@dataclass(frozen=True)
class Prometheus:
    """One that runs; `address` is host:port."""

    address: str
    pid: int

    def now(self, expression: str) -> list[Series]:
        """Labels and value of every series that the expression gives now."""
        found = self._ask("query", {"query": expression})["data"]["result"]
        return [(one["metric"], float(one["value"][1])) for one in found]

    def groups(self) -> list[Group]:
        """How the newest evaluation of each group of rules went."""
        return [_group(told) for told in self._ask("rules", {})["data"]["groups"]]

    def timed(self, route: str, words: dict[str, str]) -> tuple[float, int]:
        """What a query took, in seconds as its caller waits for them, and how many series came."""
        started = time.perf_counter()
        found = self._ask(route, words)["data"]["result"]
        return time.perf_counter() - started, len(found)

    def wait_for(
        self, expression: str, holds: Callable[[list[Series]], bool], within_s: float
    ) -> None:
        """Until it is so; NotRun when it never is."""
        end_s = time.monotonic() + within_s
        while time.monotonic() < end_s:
            if holds(self.now(expression)):
                return
            time.sleep(0.5)
        raise NotRun(f"{expression} was not as it should be within {within_s:g} s")

    def resident_bytes(self) -> int:
        """What it takes of the machine's memory."""
        return int(psutil.Process(self.pid).memory_info().rss)

    def cpu_s(self) -> float:
        """Processor time that it has spent."""
        times = psutil.Process(self.pid).cpu_times()
        return float(times.user + times.system)

    def _ask(self, route: str, words: dict[str, str]) -> dict[str, Any]:
        url = f"http://{self.address}/api/v1/{route}?{urllib.parse.urlencode(words)}"
        try:
            with urllib.request.urlopen(url, timeout=ASK_LIMIT_S) as answer:
                told: dict[str, Any] = json.loads(answer.read())
        except OSError as error:
            raise NotRun(f"Prometheus, asked for {words or route}: {error}") from None
        return told


def _group(told: dict[str, Any]) -> Group:
    return Group(
        name=told["name"],
        interval_s=float(told["interval"]),
        took_s=float(told["evaluationTime"]),
        evaluated_at=told["lastEvaluation"],
        failed=sum(rule["health"] == "err" for rule in told["rules"]),
    )


@contextmanager
def prometheus(config: Path) -> Iterator[Prometheus]:
    """One with this configuration; what it keeps lies beside it."""
    address = f"127.0.0.1:{free_port()}"
    options = [
        f"--config.file={config}",
        f"--storage.tsdb.path={config.parent / 'data'}",
        f"--web.listen-address={address}",
    ]
    with _running(PROMETHEUS, options, address, config.parent) as process:
        yield Prometheus(address, process.pid)


@contextmanager
def alertmanager(config: Path) -> Iterator[str]:
    """Where it listens."""
    address = f"127.0.0.1:{free_port()}"
    options = [
        f"--config.file={config}",
        f"--storage.path={config.parent / 'alertmanager'}",
        f"--web.listen-address={address}",
        "--cluster.listen-address=",
    ]
    with _running(ALERTMANAGER, options, address, config.parent):
        yield address


@contextmanager
def _running(
    name: str, options: Sequence[str], address: str, folder: Path
) -> Iterator[subprocess.Popen[bytes]]:
    program = shutil.which(name)
    if program is None:
        raise NotRun(f"{name} is not installed")
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            [program, *options],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            preexec_fn=partial(die_with, os.getpid()),
        )
    try:
        _wait_until_ready(name, address, process)
        yield process
    finally:
        process.kill()
        process.wait(timeout=10)


def _wait_until_ready(name: str, address: str, process: subprocess.Popen[bytes]) -> None:
    end_s = time.monotonic() + START_LIMIT_S
    while time.monotonic() < end_s and process.poll() is None:
        try:
            with urllib.request.urlopen(f"http://{address}/-/ready", timeout=1):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    raise NotRun(f"{name} was not ready within {START_LIMIT_S:g} s")
