"""The list of queries that a real job leaves empty names queries that there are, once each."""

from __future__ import annotations

from tests.end_to_end.oncall.looking import still_waiting
from tests.unit.dashboards.boards import UIDS, load, questions

THERE = {f"{uid}: {one.where}" for uid in UIDS for one in questions(load(uid))}
WAITING = still_waiting()
LISTED = [
    one
    for by_reason in (WAITING.machine, WAITING.course, WAITING.run)
    for places in by_reason.values()
    for one in places
]


def test_every_query_that_still_waits_exists() -> None:
    assert set(LISTED) - THERE == set()


def test_every_query_waits_for_one_thing() -> None:
    assert sorted(LISTED) == sorted(set(LISTED))


def test_most_queries_are_answered_by_a_real_job() -> None:
    assert len(LISTED) < len(THERE) / 2
