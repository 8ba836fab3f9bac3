"""The guard of threads that exchange with the store, and the launcher's two such threads."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterator

import pytest

from holdfast_sidecar.launcher.plan_watch import PlanWatch, Reporter
from holdfast_sidecar.records.codec import decode, encode
from holdfast_sidecar.records.plan import Plan
from holdfast_sidecar.records.reports import AgentReport
from holdfast_sidecar.store.memory_store import MemoryServer, MemoryStore
from holdfast_sidecar.store.protocol import (
    ALL_SECTIONS,
    ExchangeGuard,
    Section,
    StoreUnavailable,
    View,
)

PATIENCE_S = 10.0


class OddStore(MemoryStore):
    """Fails with an error that no store promises, until told not to."""

    is_odd = True

    def __init__(self, server: MemoryServer) -> None:
        super().__init__(server)
        self.has_taken_a_report = threading.Event()

    def read(self, sections: Collection[Section] = ALL_SECTIONS) -> View:
        if self.is_odd:
            raise ValueError("odd")
        return super().read(sections)

    def report_as(
        self,
        section: Section,
        field: str,
        value: str,
        incarnations: Collection[str],
        *,
        wake: bool = True,
    ) -> str | None:
        if self.is_odd:
            raise ValueError("odd")
        held = super().report_as(section, field, value, incarnations, wake=wake)
        self.has_taken_a_report.set()
        return held


def raises(error: Exception) -> Callable[[], None]:
    def exchange() -> None:
        raise error

    return exchange


def test_an_error_is_handed_back_and_logged_once_until_an_exchange_went_well(
    caplog: pytest.LogCaptureFixture,
) -> None:
    guard = ExchangeGuard(logging.getLogger("test"))
    odd = ValueError("odd")
    assert [guard.run(raises(odd)) for _ in range(3)] == [odd] * 3
    assert len(caplog.records) == 1
    assert guard.run(lambda: None) is None
    guard.run(raises(odd))
    assert len(caplog.records) == 2


def test_a_store_that_is_away_is_left_to_the_caller_to_tell_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    away = StoreUnavailable("away")
    assert ExchangeGuard(logging.getLogger("test")).run(raises(away)) is away
    assert caplog.records == []


class Noticing(logging.Handler):
    """Tells that an error was logged."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.has_logged = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.has_logged.set()


@pytest.fixture
def logged() -> Iterator[threading.Event]:
    """Set once a launcher's thread has logged an error."""
    handler, logger = Noticing(), logging.getLogger("holdfast_sidecar.launcher")
    logger.addHandler(handler)
    yield handler.has_logged
    logger.removeHandler(handler)


def test_the_launcher_follows_plans_again_after_an_odd_reading(logged: threading.Event) -> None:
    server = MemoryServer()
    leader, store = MemoryStore(server), OddStore(server)
    lease = leader.campaign("leader", 60.0, 0)
    watch = PlanWatch(store, look_every_s=0.01)
    watch.start()
    assert logged.wait(PATIENCE_S)
    plan = Plan(0, 1, "running", [], world_size=0)
    assert leader.order(lease, Section.PLAN, "current", encode(plan), None)
    store.is_odd = False
    assert watch.wait_for(lambda: watch.plan, PATIENCE_S) == plan
    watch.stop()


def test_the_launcher_goes_on_to_beat_after_an_odd_writing(logged: threading.Event) -> None:
    server = MemoryServer()
    store = OddStore(server)
    report = AgentReport("a", "a-1", "joining", -1, 0, 1, "127.0.0.1", 1, 1)
    reporter = Reporter(store, report, heartbeat_s=0.01)
    reporter.start()
    assert logged.wait(PATIENCE_S)
    store.is_odd = False
    assert store.has_taken_a_report.wait(PATIENCE_S)
    reporter.say(state="left")
    reporter.close(PATIENCE_S)
    text = MemoryStore(server).read().section(Section.AGENTS)["a"]
    told = decode(AgentReport, text)
    assert told is not None
    assert told.state == "left"
