"""`bench oncall`: what is made up is what a sidecar would tell, and each goal can be missed."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from bench.benchmark import Sample
from bench.figures import NOT_RUN, Figure
from bench.oncall.boards import load, queries
from bench.oncall.goals import figures
from bench.oncall.made_fleet import MadeFleet
from bench.oncall.made_job import LASTED_S, RUN, MadeJob
from bench.oncall.monitors import Group
from bench.oncall.names import BOARDS, DATA, PAGE, PAGER, PAINT, PROMETHEUS, STATIC
from bench.oncall.pager import judged
from bench.oncall.rows import BENCHMARK, tasks
from bench.oncall.rules import Evaluations
from bench.oncall.scrape import series
from bench.oncall.shipped import ALERTS, SCRAPING, write_alertmanager, write_prometheus
from bench.oncall.yesterday import lines, series_of
from testing.pager import Notice, notice_of

from holdfast_sidecar.export.exposition import draw, expose
from holdfast_sidecar.export.http_server import HttpRequest
from holdfast_sidecar.export.live.packing import unpack
from holdfast_sidecar.export.live.routes import LiveTelling
from holdfast_sidecar.export.state import TickState
from holdfast_sidecar.records.account import parse_account

NOW_UNIX_S = 1_000_000.0


def fleet(ranks: int = 16) -> MadeFleet:
    return MadeFleet(MadeJob(ranks, NOW_UNIX_S - LASTED_S))


def page_of(picture: TickState) -> str:
    return expose(draw(picture, RUN))[0].decode()


def value(page: str, beginning: str) -> float:
    """Of the only series that begins so."""
    (line,) = [line for line in page.splitlines() if line.startswith(beginning)]
    return float(line.rsplit(" ", 1)[1])


def total(page: str, name: str) -> float:
    """Of all series of this name."""
    lines = [line for line in page.splitlines() if line.startswith(f"holdfast_{name}{{")]
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


def stamped(row: str, *samples: Sample) -> list[Sample]:
    return [{"row": row, **sample} for sample in samples]


def met(found: Sequence[Figure], beginning: str) -> Any:
    (figure,) = [one for one in found if one.name.startswith(beginning) and one.goal]
    return figure.met


def test_every_task_has_a_key_of_its_own_and_a_row_that_can_be_asked_for() -> None:
    for quick in (False, True):
        planned = tasks(quick)
        assert len({task.key for task in planned}) == len(planned)
        assert {task.row for task in planned} <= set(BENCHMARK.rows)
    assert {task.row for task in tasks(False)} == set(BENCHMARK.rows)


def test_nothing_measured_is_nothing_met() -> None:
    for found in (figures([]), figures([{"row": row, "not_run": "no"} for row in BENCHMARK.rows])):
        assert {figure.met for figure in found} == {NOT_RUN}
        assert sum(figure.goal is not None for figure in found) == 7


def test_the_leader_tells_of_the_whole_job_and_of_its_own_ranks() -> None:
    page = page_of(fleet().leader(5000.0, NOW_UNIX_S))
    assert value(page, "holdfast_job_ranks_expected{") == 16
    assert value(page, "holdfast_job_ranks_reporting{") == 16
    assert page.count("\nholdfast_node_last_heartbeat_timestamp_seconds{") == 2
    assert page.count("\nholdfast_rank_up{") == 8
    assert page.count("\nholdfast_gpu_power_watts{") == 8
    assert page.count("\nholdfast_job_slow_ranks{") == 1


def test_other_nodes_tell_of_themselves_alone() -> None:
    pictures = fleet().pictures(5000.0, NOW_UNIX_S)
    assert list(pictures) == ["node-0", "node-1"]
    page = page_of(pictures["node-1"])
    assert "\nholdfast_job_" not in page
    assert page.count("\nholdfast_rank_up{") == 8


def test_what_counts_goes_up() -> None:
    made = fleet()
    before, after = (
        page_of(made.leader(5000.0 + later_s, NOW_UNIX_S + later_s)) for later_s in (0.0, 15.0)
    )
    for name in (
        "rank_step",
        "rank_phase_seconds_total",
        "gpu_energy_joules_total",
        "rdma_transmit_bytes_total",
        "job_step",
        "job_time_seconds_total",
    ):
        assert total(after, name) > total(before, name)


def test_its_account_adds_up_to_the_time_since_it_began() -> None:
    orders = fleet().leader(5000.0, NOW_UNIX_S).orders
    assert orders.view is not None
    (told,) = [one for section, one in orders.view.sections.items() if "s:productive" in one]
    account = parse_account(told)
    assert account is not None
    assert account.total_us == pytest.approx(LASTED_S * 1e6, abs=10)
    assert account.total_us == account.at_us - account.began_us


def test_two_minutes_fill_the_map() -> None:
    made, telling = fleet(), LiveTelling(RUN)
    picture = None
    for ago_s in range(119, -1, -1):
        picture = made.leader(5000.0 - ago_s, NOW_UNIX_S - ago_s)
        telling.hear(picture)
    view = unpack(telling.answer(HttpRequest("/live.json"), picture).body)
    assert view is not None
    assert len(view.heat.columns) == 120
    assert len(view.heat.rows) == 16
    assert all(one is not None for row in view.heat.rows.values() for one in row)
    assert len(view.incidents) == 50


def test_no_variable_is_left_in_what_prometheus_is_asked() -> None:
    asked = [one for board in BOARDS for one in queries(load(board))]
    assert {one.board for one in asked} == set(BOARDS)
    assert [one.expression for one in asked if "$" in one.expression] == []
    assert {one.points for one in asked} >= {0, 1000}


def test_what_is_shipped_keeps_its_times_and_gets_other_addresses(tmp_path: Path) -> None:
    shipped = yaml.safe_load(SCRAPING.read_text())
    write_prometheus(tmp_path, ["h:1", "h:2"], "h:3")
    made = yaml.safe_load((tmp_path / "prometheus.yml").read_text())
    assert made["global"] == shipped["global"]
    (block,) = made["scrape_configs"]
    assert [one["url"] for one in block["http_sd_configs"]] == ["http://h:1/sd", "http://h:2/sd"]
    assert {one["refresh_interval"] for one in block["http_sd_configs"]} == {"30s"}
    assert sorted(path.name for path in (tmp_path / "rules").glob("*")) == sorted(
        path.name for path in ALERTS.glob("rules/*")
    )
    write_alertmanager(tmp_path, "http://h:4")
    routes = yaml.safe_load((tmp_path / "alertmanager.yml").read_text())
    theirs = yaml.safe_load((ALERTS / "alertmanager.yml").read_text())
    assert (routes["route"], routes["inhibit_rules"]) == (theirs["route"], theirs["inhibit_rules"])
    told = {one["name"]: one.get("webhook_configs") for one in routes["receivers"]}
    assert told["pager"] == [{"url": "http://h:4/pager", "send_resolved": True}]
    assert told["nobody"] is None


def test_an_evaluation_that_is_seen_twice_is_one() -> None:
    seen = Evaluations(15.0)
    told = (("0001-01-01T00:00:00Z", 0.0), ("10:00", 0.5), ("10:00", 0.5), ("10:15", 1.0))
    for at, took_s in told:
        seen.note(Group("g", 15.0, took_s, at, failed=0))
    assert list(seen.took_s.values()) == [0.5, 1.0]


@pytest.mark.parametrize(("took_s", "is_met"), [(3.0, True), (3.1, False)])
def test_rules_may_take_a_fifth_of_their_interval(took_s: float, is_met: bool) -> None:
    quick = {"group": "a", "interval_s": 30.0, "took_s": [0.1, 0.2], "failed": 0}
    slow = {"group": "b", "interval_s": 15.0, "took_s": [took_s, 0.1], "failed": 0}
    found = figures(stamped(PROMETHEUS, quick, slow))
    assert met(found, "rules at 1024 ranks: slowest") is is_met
    assert met(found, "rules that could not be evaluated") is True


def test_a_rule_that_fails_is_told() -> None:
    failing = {"group": "a", "interval_s": 30.0, "took_s": [0.1], "failed": 1}
    assert met(figures(stamped(PROMETHEUS, failing)), "rules that could not be evaluated") is False


def test_a_dashboard_is_as_slow_as_its_slowest_query_and_empty_answers_are_told() -> None:
    answered = {"board": BOARDS[0], "s": 0.5, "series": 3}
    empty = {"board": BOARDS[0], "s": 0.1, "series": 0}
    found = {one.name: one.value for one in figures(stamped(PROMETHEUS, answered, empty))}
    assert found[f"{BOARDS[0]} at 1024 ranks: slowest query"] == 0.5
    assert found[f"{BOARDS[1]} at 1024 ranks: slowest query"] is None
    assert found["queries that found nothing"] == 1


@pytest.mark.parametrize(("more", "is_met"), [(0, True), (1, False)])
def test_a_page_has_limits(more: int, is_met: bool) -> None:
    sizes = {"packed_bytes": 200_000 + more, "bytes": 100_000 + more, "ms": 50.0}
    paint = {"empty_ms": [10.0] * 3, "page_ms": [30.0 + more] * 3, "job_shown_ms": [90.0] * 3}
    found = figures(
        stamped(PAGE, {"what": STATIC, **sizes}, {"what": DATA, **sizes}, {"what": PAINT, **paint})
    )
    for beginning in ("page: static", "page: data", "page: first paint / an empty"):
        assert met(found, beginning) is is_met


def notice(
    at_s: float, node: str = "b", receiver: str = "pager", words: str = "node_lost"
) -> Notice:
    alert = {
        "status": "firing",
        "labels": {"alertname": "HoldfastNodeLost", "node": node},
        "annotations": {"description": f"Incident i1: {words}."},
    }
    return notice_of(receiver, {"status": "firing", "alerts": [alert]}, at_s)


@pytest.mark.parametrize(
    ("notices", "in_time", "is_one"),
    [
        ([notice(190.0)], True, True),
        ([notice(190.0), notice(191.0, receiver="tickets")], True, True),
        ([notice(221.0)], False, True),
        ([notice(190.0), notice(200.0, node="a")], True, False),
        ([notice(190.0, node="a")], True, False),
        ([notice(190.0, words="hang")], True, False),
        ([], NOT_RUN, False),
    ],
)
def test_a_death_is_one_page_within_two_minutes(
    notices: list[Notice], in_time: bool | str, is_one: bool
) -> None:
    sample = judged(notices, before=0, struck_unix_s=100.0)
    found = figures(stamped(PAGER, sample))
    assert met(found, "a node's death to its page") == in_time
    assert met(found, "deaths that were not one page") is is_one


def test_a_page_while_all_was_well_is_told() -> None:
    sample = judged([notice(90.0), notice(190.0)], before=1, struck_unix_s=100.0)
    assert sample["s"] == 90.0
    assert met(figures(stamped(PAGER, sample)), "deaths that were not one page") is False


def test_series_are_lines_with_a_value() -> None:
    assert series('# HELP a b\n# TYPE a gauge\na 1\na{b="c"} 2\n\n# EOF\n') == 2


def test_yesterday_is_in_order_and_as_long_as_rules_look_back() -> None:
    series = list(series_of({"node-0": "h:1", "node-1": "h:2"}))
    names = [name for name, _ in itertools.groupby(one.name for one in series)]
    assert len(names) == len(set(names))
    assert len({one.spelled for one in series}) == len(series)
    now = 14_400_000
    probe = next(one for one in series if ("probe", "gpu") in one.labels)
    port = next(one for one in series if one.name == "rdma_transmit_bytes_total")
    told = list(lines([probe, port], now - 7200, now, now))
    assert told[-1] == "# EOF\n"
    times = [int(line.split()[-1]) for line in told[:-1]]
    assert times == [*range(now - 7200, now, 15), *range(now - 3600, now, 15)]
    assert told[0] == (
        'holdfast_probe_up{job="holdfast-sidecar",run="llm",node="node-0",instance="h:1",'
        f'probe="gpu"}} 1 {now - 7200}\n'
    )
