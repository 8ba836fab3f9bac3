"""Who watches a run hears that somebody ended it: silence alone would look like a lost machine."""

from __future__ import annotations

import re
import signal
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from tests.servers import free_port

from holdfast_sidecar.export.http_server import SCRAPE
from holdfast_sidecar.lifecycle import TELLING

if TYPE_CHECKING:
    from tests.end_to_end.preemption.conftest import Launch, Scheduler

pytestmark = pytest.mark.torch

REQUEUE = 75
INTERVAL_S = 4.0
"""Longer than a launcher takes to leave that nobody scrapes."""
TOLD = re.compile(
    r'^holdfast_(node_launcher_told_to_end\{.*|job_state\{.*state="stopped".*)\} 1(\.0)?$',
    re.MULTILINE,
)
"""Either is enough for HoldfastRunSilent: a job that was saved is stopped, too."""


@dataclass
class Prometheus:
    """Comes by every so often; pages that it was told."""

    address: str
    interval_s: float
    pages: list[str] = field(default_factory=list)
    is_over: threading.Event = field(default_factory=threading.Event)

    def scrape(self) -> None:
        """Once, if anybody answers."""
        request = urllib.request.Request(f"http://{self.address}/metrics", headers={SCRAPE: "10"})
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                self.pages.append(answer.read().decode())
        except OSError:
            pass

    def come_by(self) -> None:
        """Until the end of the test."""
        while not self.is_over.wait(self.interval_s):
            self.scrape()


@contextmanager
def scraping(address: str) -> Iterator[Prometheus]:
    prometheus = Prometheus(address, INTERVAL_S)
    thread = threading.Thread(target=prometheus.come_by)
    thread.start()
    try:
        yield prometheus
    finally:
        prometheus.is_over.set()
        thread.join()


def started(scheduler: Scheduler, address: str) -> Launch:
    """A job that steps."""
    job = scheduler.start(f"--set=sidecar.listen={address}")
    scheduler.await_steps(10)
    return job


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 1), (signal.SIGTERM, REQUEUE)], ids=["ctrl-c", "preempted"]
)
def test_the_last_scrape_says_that_somebody_ended_it(
    scheduler: Scheduler, number: signal.Signals, code: int
) -> None:
    address = f"127.0.0.1:{free_port()}"
    job = started(scheduler, address)
    with scraping(address) as prometheus:
        scheduler.await_that(lambda: bool(prometheus.pages), "it is scraped")
        assert not TOLD.search(prometheus.pages[-1])
        job.process.send_signal(number)
        assert job.wait() == code, scheduler.story()
    assert TOLD.search(prometheus.pages[-1]), scheduler.story()


def test_who_asks_once_more_is_not_held(scheduler: Scheduler) -> None:
    address = f"127.0.0.1:{free_port()}"
    job = started(scheduler, address)
    Prometheus(address, INTERVAL_S).scrape()
    job.process.send_signal(signal.SIGINT)
    scheduler.await_that(lambda: TELLING.words in job.output, "it waits, and says for what")
    asked_s = time.monotonic()
    job.process.send_signal(signal.SIGINT)
    assert job.wait() == 1, scheduler.story()
    assert time.monotonic() - asked_s < TELLING.most_s / 2
    assert "killed" not in job.output


def test_a_launcher_that_is_about_to_be_killed_waits_no_longer_than_it_may(
    scheduler: Scheduler,
) -> None:
    address = f"127.0.0.1:{free_port()}"
    job = scheduler.start(f"--set=sidecar.listen={address}", "--set=policy.preemption_grace_s=8")
    scheduler.await_steps(10)
    Prometheus(address, INTERVAL_S).scrape()
    asked_s = time.monotonic()
    job.process.send_signal(signal.SIGTERM)
    assert job.wait() == REQUEUE, scheduler.story()
    assert TELLING.words in job.output, scheduler.story()
    assert time.monotonic() - asked_s < TELLING.most_s - 3
    assert "killed" not in job.output
