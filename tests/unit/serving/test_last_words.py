"""Whether a Prometheus is expected that has not heard how the run ended."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.metrics.picture import picture

from holdfast_sidecar.picture import Picture
from holdfast_sidecar.records.plan import Member, Plan
from holdfast_sidecar.serving.exporter import Exporter
from holdfast_sidecar.serving.last_words import EXPECTED_S, LastWords
from holdfast_sidecar.serving.metrics_route import MetricsRoute
from holdfast_sidecar.serving.route import Request


def standing(state: str, is_leader: bool = True) -> Picture:
    plan = Plan(1, 4, state, [Member("a", "a/x", 0, 0, 1)], 1)
    now = picture()
    return replace(now, orders=replace(now.orders, plan=plan, is_leader=is_leader))


def test_who_came_by_is_awaited_until_it_has_heard_of_the_end() -> None:
    words = LastWords()
    words.told(standing("running"), 100.0)
    assert words.is_awaited(110.0)
    words.told(standing("done"), 115.0)
    assert not words.is_awaited(116.0)


def test_who_does_not_lead_tells_nobody_of_the_end() -> None:
    words = LastWords()
    words.told(standing("stopped", is_leader=False), 100.0)
    assert words.is_awaited(101.0)


def test_nobody_is_awaited_who_never_came_or_stays_away() -> None:
    words = LastWords()
    assert not words.is_awaited(1.0)
    words.told(None, 100.0)
    assert not words.is_awaited(100.0 + EXPECTED_S)


def test_only_a_scraper_counts() -> None:
    words = LastWords()
    exporter = Exporter((MetricsRoute("job", last_words=words, clock=lambda: 100.0),))
    exporter.tell(standing("running"))
    exporter.answer(Request("/metrics"))
    assert not words.is_awaited(101.0), "somebody who looks with curl"
    exporter.answer(Request("/metrics", is_scrape=True))
    assert words.is_awaited(101.0)
