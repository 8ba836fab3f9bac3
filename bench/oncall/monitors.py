"""Prometheus and Alertmanager as they are installed, on loopback, until the end of a block."""

from __future__ import annotations

import json
import shutil
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import psutil
from testing.alerting import (
    ALERTMANAGER,
    PROMETHEUS,
    RESEND_S,
    Daemon,
    Requirement,
    alertmanager_command,
    find_programs,
    prometheus_command,
    start,
)

from bench.benchmark import NotRun
from holdfast_sidecar.cli.demonstration.job import DemonstrationStopped

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
def prometheus(folder: Path) -> Iterator[Prometheus]:
    """One with the prometheus.yml of this folder; what it keeps lies beside it."""
    command = partial(prometheus_command, found(PROMETHEUS), folder, RESEND_S)
    with _running(PROMETHEUS, command, folder) as daemon:
        yield Prometheus(daemon.address, daemon.process.pid)


@contextmanager
def alertmanager(folder: Path) -> Iterator[str]:
    """Where one listens that has the alertmanager.yml of this folder."""
    command = partial(alertmanager_command, found(ALERTMANAGER), folder)
    with _running(ALERTMANAGER, command, folder) as daemon:
        yield daemon.address


def found(program: Requirement) -> str:
    """Its path; NotRun where it is not installed."""
    path = find_programs(shutil.which).get(program)
    if path is None:
        raise NotRun(program.how_to_get_it)
    return path


@contextmanager
def _running(
    program: Requirement, command_at: Callable[[str], Sequence[str]], folder: Path
) -> Iterator[Daemon]:
    try:
        daemon = start(program.called, command_at, folder / f"{program.called}.log")
    except DemonstrationStopped as stopped:
        raise NotRun("; ".join([str(stopped), *stopped.tail[-1:]])) from None
    try:
        yield daemon
    finally:
        daemon.end()
