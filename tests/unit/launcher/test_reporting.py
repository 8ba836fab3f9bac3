"""What a launcher does about a report of another launcher under its node's name."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable

import pytest

from holdfast_sidecar.launcher.plan_watch import Reporter
from holdfast_sidecar.records.codec import decode, encode
from holdfast_sidecar.records.reports import AgentReport
from holdfast_sidecar.store.memory_store import MemoryServer, MemoryStore
from holdfast_sidecar.store.protocol import Section

HEARTBEAT_S = 0.3
OWN = AgentReport("a", "a-2", "joining", -1, 0, 1, "127.0.0.1", 1, 1)
OTHER = dataclasses.replace(OWN, incarnation="a-1", state="running", attempt=0)


class Seat:
    """One node's place in a store, held by another launcher; the clock is moved by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        self.store = MemoryStore(MemoryServer())
        self.store.report(Section.AGENTS, "a", encode(OTHER))
        self.reporter = Reporter(self.store, OWN, HEARTBEAT_S)

    def try_at(self, after_s: float) -> str:
        """Whose the place is once this node's launcher tried to write, so long after the start."""
        self.now = 100.0 + after_s
        self.reporter._write(OWN, None, True)
        held = decode(AgentReport, self.store.read().section(Section.AGENTS)["a"])
        return "" if held is None else held.incarnation


@pytest.fixture
def seat(monkeypatch: pytest.MonkeyPatch) -> Seat:
    return Seat(monkeypatch)


def test_a_launcher_that_could_not_beat_while_the_store_was_away_keeps_its_place(
    seat: Seat,
) -> None:
    assert [seat.try_at(s) for s in (0.0, 3.1, 3.4)] == ["a-1"] * 3


def test_a_launcher_keeps_its_place_while_the_store_keeps_everybody_waiting(
    seat: Seat, monkeypatch: pytest.MonkeyPatch
) -> None:
    put: Callable[..., str | None] = seat.store.report_as

    def put_slowly(*given: object, **options: object) -> str | None:
        held = put(*given, **options)
        seat.now += 3.1
        return held

    assert seat.try_at(0.0) == "a-1"
    monkeypatch.setattr(seat.store, "report_as", put_slowly)
    assert seat.try_at(0.3) == "a-1"


def test_a_launcher_whose_heartbeat_stood_still_while_the_store_answered_gives_way(
    seat: Seat,
) -> None:
    holders = [seat.try_at(look * HEARTBEAT_S) for look in range(12)]
    assert (holders[0], holders[-1]) == ("a-1", "a-2")
