"""Whom Prometheus is told to scrape."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.export.picture import picture

from holdfast_sidecar.export.http_server import HttpRequest
from holdfast_sidecar.export.routes import (
    KEEP_EVERY_S,
    LISTED_S,
    DiscoveryRoute,
    Target,
    TargetFile,
    Targets,
    as_discovered,
)
from holdfast_sidecar.records.reports import NodeReport
from holdfast_sidecar.store.orders import Orders

ASKED = HttpRequest("/sd")


def report(node: str, beat: int, address: str = "", incarnation: str = "x") -> NodeReport:
    address = address or f"10.0.0.{ord(node)}:9750"
    return NodeReport(node, incarnation, beat, 0, 0, 0, True, metrics_address=address)


def reports(**beats: int) -> dict[str, NodeReport]:
    return {node: report(node, beat) for node, beat in beats.items()}


def seen_for(targets: Targets, seconds: float, step_s: float = 60.0, lost: str = "b") -> None:
    """The store answers all the time; one node's beat stands still."""
    start = targets._read_at_s or 0.0
    for number in range(1, round(seconds / step_s) + 1):
        targets.read(reports(a=number, b=7 if lost == "b" else number), start + number * step_s)


def test_every_node_that_reports_is_listed_under_its_own_address() -> None:
    targets = Targets("a", "10.0.0.97:9750")
    assert not targets.is_known
    targets.read(reports(a=1, b=1), 10.0)
    assert targets.is_known
    assert targets.listed() == {"a": "10.0.0.97:9750", "b": "10.0.0.98:9750"}
    targets.read({"b": report("b", 2, "10.9.9.9:1")}, 11.0)
    assert targets.listed()["b"] == "10.9.9.9:1", "it was started again elsewhere"


def test_a_node_that_is_lost_stays_listed_for_an_hour() -> None:
    targets = Targets("a", "a:1")
    targets.read(reports(a=1, b=7), 0.0)
    seen_for(targets, LISTED_S - 60)
    assert "b" in targets.listed()
    seen_for(targets, 120)
    assert "b" not in targets.listed()
    targets.read({"b": report("b", 1, incarnation="new")}, 9e9)
    assert "b" in targets.listed(), "it is back"


@pytest.mark.parametrize(
    ("address", "boot", "is_listed"),
    [
        ("127.0.0.1:9750", "other", False),
        ("https://[::1]:9750", "other", False),
        ("127.0.0.1:9751", "this", True),
        ("10.0.0.98:9750", "other", True),
        ("127.0.0.1:9750", "", True),
    ],
)
def test_another_machine_s_loopback_address_is_not_listed_as_nobody_would_find_it_there(
    address: str, boot: str, is_listed: bool
) -> None:
    targets = Targets("a", "127.0.0.1:9750", {"b": Target(address, "x 1")}, boot="this")
    targets.read({"b": replace(report("b", 2, address), boot=boot)}, 0.0)
    assert ("b" in targets.listed()) is is_listed
    assert (targets.left_out == {"b"}) is not is_listed


def test_who_is_left_out_is_said_once_to_those_who_ask(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = route(tmp_path / "targets.json")
    made.targets.boot = "this"
    alone = {n: replace(report(n, 1, "127.0.0.1:1"), boot=f"of {n}") for n in "bc"}
    heard(made, Orders(store_up=True, nodes=alone), 0.0)
    assert not caplog.records, "most jobs have no Prometheus"
    for _ in range(2):
        assert [one["labels"]["node"] for one in json.loads(made.answer(ASKED, None).body)] == ["a"]
    (record,) = caplog.records
    assert "/sd leaves out b, c: their sidecars listen" in record.getMessage()


def test_a_node_whose_report_is_gone_stays_listed_as_long() -> None:
    targets = Targets("a", "a:1")
    targets.read(reports(a=1, b=7), 0.0)
    targets.read(reports(a=2), LISTED_S - 1)
    assert "b" in targets.listed()
    targets.read(reports(a=3), LISTED_S + 1)
    assert "b" not in targets.listed()
    assert "b" not in targets.by_node, "a job of many names, for weeks, would fill the file"


def test_while_redis_is_away_the_last_list_stands_however_long() -> None:
    targets = Targets("a", "a:1")
    targets.read(reports(a=1, b=7), 0.0)
    targets.pause()
    assert "b" in targets.listed()
    targets.read(reports(a=1, b=7), 10 * LISTED_S)
    assert "b" in targets.listed(), "its beat could not be heard"
    targets.read(reports(a=1, b=7), 10 * LISTED_S + 0.3)
    assert "b" in targets.listed()


def test_this_node_is_listed_whatever_the_store_says() -> None:
    targets = Targets("a", "a:1")
    targets.read({}, 0.0)
    targets.read({}, 9 * LISTED_S)
    assert targets.listed() == {"a": "a:1"}


def test_the_list_reads_as_prometheus_has_it() -> None:
    listed = {"a": "10.0.0.1:9750", "b": "https://[fd00::2]:9750"}
    assert as_discovered(listed.items(), "llm") == [
        {"targets": ["10.0.0.1:9750"], "labels": {"run": "llm", "node": "a"}},
        {
            "targets": ["[fd00::2]:9750"],
            "labels": {"run": "llm", "node": "b", "__scheme__": "https"},
        },
    ]


def route(path: Path, now_unix_s: float = 1000.0) -> DiscoveryRoute:
    file = TargetFile(path)
    left = file.read(now_unix_s)
    return DiscoveryRoute("job", Targets("a", "a:1", left, is_known=bool(left)), file)


def heard(made: DiscoveryRoute, orders: Orders, now_s: float, now_unix_s: float = 1000.0) -> None:
    shown = picture()
    moment = replace(shown.moment, now_s=now_s, now_unix_s=now_unix_s)
    made.hear(replace(shown, moment=moment, orders=orders))


def read(**beats: int) -> Orders:
    return Orders(store_up=True, nodes=reports(**beats))


def test_before_anything_is_known_it_is_an_error_so_that_no_list_is_emptied(
    tmp_path: Path,
) -> None:
    made = route(tmp_path / "targets.json")
    assert made.answer(ASKED, None).status == 503
    heard(made, Orders(store_up=False), 1.0)
    assert made.answer(ASKED, None).status == 503
    heard(made, read(a=1, b=1), 2.0)
    answer = made.answer(ASKED, None)
    assert (answer.status, answer.content_type) == (200, "application/json")
    assert [one["labels"]["node"] for one in json.loads(answer.body)] == ["a", "b"]
    heard(made, replace(read(a=1, b=1), store_up=False), 3.0)
    assert made.answer(ASKED, None) == answer


def test_a_sidecar_that_is_started_again_goes_on_from_the_list(tmp_path: Path) -> None:
    path = tmp_path / "state" / "targets.json"
    first = route(path)
    for number in range(100):
        heard(first, read(a=number, b=7, c=number), number * 10.0, 1000.0 + number * 10.0)
    again = route(path, 2000.0)
    assert set(again.targets.listed()) == {"a", "b", "c"}
    assert again.answer(ASKED, None).status == 200, "Redis may be away just now"
    # What stands in the store of b is as old as before: its hour goes on, it does not begin.
    heard(again, read(a=1, b=7, c=200), 0.0)
    heard(again, read(a=2, b=7, c=201), LISTED_S - 900.0)
    assert set(again.targets.listed()) == {"a", "c"}


def test_what_lies_there_from_another_time_is_not_listed_until_it_is_heard(tmp_path: Path) -> None:
    path = tmp_path / "targets.json"
    heard(route(path), read(a=1, b=7), 0.0, 1000.0)
    later = route(path, 1000.0 + 2 * LISTED_S)
    assert later.targets.listed() == {"a": "a:1"}
    heard(later, read(a=1, b=7), 0.0)
    assert later.targets.listed() == {"a": "a:1"}
    heard(later, read(a=2, b=8), 1.0)
    assert set(later.targets.listed()) == {"a", "b"}


def test_the_list_is_written_for_news_and_now_and_then(tmp_path: Path) -> None:
    path = tmp_path / "targets.json"
    made = route(path)
    heard(made, read(a=1, b=1), 0.0, 1000.0)
    path.unlink()
    heard(made, read(a=2, b=2), 1.0, 1001.0)
    assert not path.exists()
    heard(made, read(a=3, b=3), 2.0, 1000.0 + KEEP_EVERY_S)
    assert path.exists()
    path.unlink()
    heard(made, read(a=4, b=4, c=1), 3.0, 1001.0 + KEEP_EVERY_S)
    assert "c" in json.loads(path.read_text())


def test_a_list_that_can_not_be_written_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "state").write_text("a file where the directory should be")
    made = route(tmp_path / "state" / "targets.json")
    heard(made, read(a=1, b=1), 0.0)
    heard(made, read(a=1, b=1, c=1), 1.0)
    assert len(caplog.records) == 1
    assert made.answer(ASKED, None).status == 200


@pytest.mark.parametrize("text", ["", "[]", '{"b": 1}', '{"b": {"address": "x"}}'])
def test_a_list_that_can_not_be_read_is_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / "targets.json"
    path.write_text(text)
    assert TargetFile(path).read(1000.0) == {}
