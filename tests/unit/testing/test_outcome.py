"""The demonstration must say so when somebody was called wrongly, or not at all."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from testing.demo_alerting import Addresses, Killed, Verdict, judge, stack_page
from testing.pager import Notice, all_clear, pages, parse_notice, tickets, watchdogs

from holdfast_sidecar.records.plan import Incident

RUN = "demo-stack"
KILLED = Killed("b", 0, 100.0)
LOST = Incident("i1", 0, "node_lost", recovered_unix_s=190.0)
BLANK = Verdict("b", 200.0, 1.0)
WORDS = "Nothing has been heard of node b for 19s. Incident i1: node_lost."


def notice(receiver: str, at_unix_s: float, *names: str, status: str = "firing") -> Notice:
    """As Alertmanager says it."""
    alerts = [
        {
            "status": status,
            "labels": {"alertname": name, "run": RUN, "node": "b"},
            "annotations": {"description": WORDS, "runbook_url": f"http://x/{name}.md"},
        }
        for name in names
    ]
    body: dict[str, Any] = {"status": status, "alerts": alerts, "version": "4"}
    made = parse_notice(receiver, json.dumps(body).encode(), at_unix_s)
    assert made is not None
    return made


PAGED = notice("pager", 180.0, "HoldfastNodeLost")
CLEAR = notice("pager", 300.0, "HoldfastNodeLost", status="resolved")


def test_one_page_with_node_and_cause_that_resolves_is_right() -> None:
    told = judge(BLANK, KILLED, LOST, [PAGED, CLEAR], RUN)
    assert told.problems == ()
    assert (told.paged_s, told.recovered_s, told.resolved_s) == (80.0, 90.0, 200.0)
    assert told.page is not None
    assert told.page.runbook == "http://x/HoldfastNodeLost.md"
    assert told.as_json()["ok"]


@pytest.mark.parametrize(
    ("heard", "says"),
    [
        ([], "nobody was paged"),
        ([PAGED], "the page was never resolved"),
        ([PAGED, notice("pager", 181.0, "HoldfastJobDown"), CLEAR], "should be one alert, once"),
        ([notice("pager", 180.0, "HoldfastNodeLost", "HoldfastJobDown"), CLEAR], "should be one"),
        ([notice("pager", 221.0, "HoldfastNodeLost"), CLEAR], "paged after 121 s; 120 s at most"),
    ],
)
def test_what_is_wrong_with_the_pages_is_said(heard: list[Notice], says: str) -> None:
    problems = judge(BLANK, KILLED, LOST, heard, RUN).problems
    assert any(says in problem for problem in problems), problems


def test_a_page_about_another_node_or_without_the_cause_is_wrong() -> None:
    other = dataclasses.replace(PAGED.alerts[0], node="a", description="Something is wrong.")
    heard = [dataclasses.replace(PAGED, alerts=(other,)), CLEAR]
    problems = judge(BLANK, KILLED, LOST, heard, RUN).problems
    assert problems == (
        "the page is about a, killed was b",
        "the page does not tell the cause, node_lost",
    )


def test_a_job_that_did_not_recover_is_told() -> None:
    still = dataclasses.replace(LOST, recovered_unix_s=0.0)
    assert judge(BLANK, KILLED, still, [PAGED, CLEAR], RUN).problems == ("the job did not recover",)
    assert "the job did not recover" in judge(BLANK, KILLED, None, [PAGED, CLEAR], RUN).problems


def test_pages_tickets_and_watchdog_are_told_apart_and_other_runs_left_out() -> None:
    ticket = notice("tickets", 170.0, "HoldfastSidecarDown")
    watchdog = notice("watchdog", 90.0, "HoldfastWatchdog")
    heard = [watchdog, ticket, PAGED, CLEAR]
    assert pages(heard, RUN) == [PAGED]
    assert tickets(heard, RUN) == [ticket]
    assert all_clear(heard, RUN) == CLEAR
    assert all_clear([PAGED], RUN) is None
    assert watchdogs(heard) == [90.0]
    assert pages(heard, "another") == tickets(heard, "another") == []


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"status": "firing", "alerts": [1]}'])
def test_what_is_no_notice_of_alertmanager_is_none(body: bytes) -> None:
    assert parse_notice("pager", body, 1.0) is None


def test_what_is_printed_has_the_words_of_the_page_and_where_to_look() -> None:
    told = judge(BLANK, KILLED, LOST, [PAGED, CLEAR], RUN)
    there = Addresses("http://h:1", "http://h:2", "http://h:3/")
    printed = stack_page(dataclasses.replace(told, addresses=there))
    for words in ("HoldfastNodeLost", WORDS, "node_lost", "http://x/HoldfastNodeLost.md", "80 s"):
        assert words in printed
    for url in ("http://h:1", "http://h:2", "http://h:3/"):
        assert url in printed
    assert "shorter than the shipped" not in printed


def test_shortened_waits_are_told_of() -> None:
    assert "5 times shorter than the shipped" in stack_page(dataclasses.replace(BLANK, slower=5.0))


def test_a_lost_node_that_is_told_as_something_else_is_wrong_though_page_and_incident_agree() -> (
    None
):
    crash = dataclasses.replace(LOST, cause="crash")
    (alert,) = PAGED.alerts
    said = dataclasses.replace(alert, description="Nothing is heard of b. Incident i1: crash.")
    paged = dataclasses.replace(PAGED, alerts=(said,))
    told = judge(BLANK, KILLED, crash, [paged, CLEAR], RUN)
    assert told.problems == ("Holdfast took the lost node for crash",)
