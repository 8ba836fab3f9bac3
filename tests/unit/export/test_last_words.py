"""Whether a Prometheus is expected that has not heard how the run ended."""

from __future__ import annotations

import sys
import threading
from dataclasses import replace

from tests.unit.export.picture import picture

from holdfast_sidecar.export.http_server import HttpRequest
from holdfast_sidecar.export.routes import EXPECTED_S, Exporter, LastWords, MetricsRoute
from holdfast_sidecar.export.state import TickState
from holdfast_sidecar.records.plan import Member, Plan

A, B = "10.0.0.1", "10.0.0.2"


def standing(state: str, is_leader: bool = True) -> TickState:
    plan = Plan(1, 4, state, [Member("a", "a/x", 0, 0, 1)], 1)
    now = picture()
    return replace(now, orders=replace(now.orders, plan=plan, is_leader=is_leader))


def test_who_came_by_is_awaited_until_it_has_heard_of_the_end() -> None:
    words = LastWords()
    words.told(standing("running"), 100.0, A)
    assert words.is_awaited(110.0)
    words.told(standing("done"), 115.0, A)
    assert not words.is_awaited(116.0)


def test_each_of_two_has_to_hear_of_it() -> None:
    words = LastWords()
    for caller in (A, B):
        words.told(standing("running"), 100.0, caller)
    words.told(standing("done"), 107.0, A)
    assert words.is_awaited(108.0)
    words.told(standing("done"), 110.0, A)
    assert words.is_awaited(111.0), "the same one again is not the other"
    words.told(standing("done"), 114.0, B)
    assert not words.is_awaited(115.0)


def test_a_node_whose_launcher_was_told_to_end_has_told_so() -> None:
    words = LastWords()
    words.told(standing("running", is_leader=False), 100.0, A)
    told = replace(standing("running", is_leader=False), is_told_to_end=True)
    words.told(told, 115.0, A)
    assert not words.is_awaited(116.0)


def test_who_does_not_lead_tells_nobody_of_the_end() -> None:
    words = LastWords()
    words.told(standing("stopped", is_leader=False), 100.0, A)
    assert words.is_awaited(101.0)


def test_nobody_is_awaited_who_never_came_or_stays_away() -> None:
    words = LastWords()
    assert not words.is_awaited(1.0)
    words.told(None, 100.0, A)
    assert not words.is_awaited(100.0 + EXPECTED_S)


def test_only_a_scraper_counts() -> None:
    words = LastWords()
    exporter = Exporter((MetricsRoute("job", last_words=words, clock=lambda: 100.0),))
    exporter.tell(standing("running"))
    exporter.answer(HttpRequest("/metrics"))
    assert not words.is_awaited(101.0), "somebody who looks with curl"
    exporter.answer(HttpRequest("/metrics", is_scrape=True))
    assert words.is_awaited(101.0)


def test_those_that_come_at_the_same_moment_are_all_awaited() -> None:
    """The server answers each in a thread of its own."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(200):
            words, together = LastWords(), threading.Barrier(4)
            callers = [f"10.0.0.{number}" for number in range(4)]

            def scrape(caller: str, words: LastWords, together: threading.Barrier) -> None:
                together.wait()
                words.told(standing("running"), 100.0, caller)

            threads = [
                threading.Thread(target=scrape, args=[caller, words, together])
                for caller in callers
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            for caller in callers[:-1]:
                words.told(standing("done"), 101.0, caller)
            assert words.is_awaited(102.0), "the last one has not heard of it"
    finally:
        sys.setswitchinterval(before)
