from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
from tests.unit.dashboards import lint
from tests.unit.dashboards.boards import UIDS, Json, load, panels


def complaints(board: Json) -> list[str]:
    return [f"{rule.__name__}: {one}" for rule in lint.RULES for one in rule(board)]


@pytest.mark.parametrize("uid", UIDS)
def test_a_dashboard_keeps_every_rule(uid: str) -> None:
    assert complaints(load(uid)) == []


def first(board: Json) -> Json:
    return next(panels(board))


def defaults(board: Json) -> Json:
    found: Json = first(board)["fieldConfig"]["defaults"]
    return found


def query(board: Json) -> Json:
    found: Json = first(board)["targets"][0]
    return found


def variable(board: Json, name: str) -> Json:
    found: Json = next(one for one in board["templating"]["list"] if one["name"] == name)
    return found


PLANTED: tuple[tuple[str, Callable[[Json], object]], ...] = (
    ("importable", lambda board: board.update(id=7)),
    ("importable", lambda board: board.update(schemaVersion=16)),
    ("importable", lambda board: board.update(__inputs=[])),
    ("importable", lambda board: board.update(editable=True)),
    ("one_data_source", lambda board: variable(board, "datasource").update(label="Source")),
    ("one_data_source", lambda board: first(board).update(datasource={"uid": "abc"})),
    ("one_data_source", lambda board: query(board).update(datasource={"uid": "abc"})),
    ("variables_choose_all", lambda board: variable(board, "run").update(allValue=".*")),
    ("variables_choose_all", lambda board: variable(board, "cluster").update(allValue=".+")),
    ("variables_choose_all", lambda board: variable(board, "run").update(refresh=1)),
    ("panels_speak", lambda board: first(board).update(title="")),
    ("panels_speak", lambda board: first(board).update(description="Runs, of all there are.")),
    ("panels_speak", lambda board: defaults(board).update(unit="")),
    ("panels_speak", lambda board: defaults(board).pop("noValue")),
    ("panels_speak", lambda board: defaults(board).update(mappings=[])),
    ("titles_are_names", lambda board: first(board).update(title="Open incidents")),
    ("panels_lead_on", lambda board: defaults(board).update(links=[])),
    ("panels_lead_on", lambda board: first(board)["links"][0].update(url="/d/elsewhere")),
    ("panels_lie_apart", lambda board: first(board)["gridPos"].update(w=25)),
    ("panels_lie_apart", lambda board: first(board)["gridPos"].update(h=40)),
    ("panels_lie_apart", lambda board: first(board).update(id=3)),
    ("queries_choose", lambda board: query(board).update(expr='count(holdfast_job_step{run="a"})')),
    ("queries_choose", lambda board: query(board).update(expr="count(holdfast_job_step)")),
    ("rates_fit_the_scrape", lambda board: query(board).update(expr="rate(up{}[5m])")),
    ("rates_fit_the_scrape", lambda board: query(board).update(expr="rate(up{}[$__range])")),
    ("present_values_are_present", lambda board: query(board).update(instant=False)),
    ("happenings_are_marked", lambda board: board["annotations"].update(list=[])),
)


@pytest.mark.parametrize(("rule", "plant"), PLANTED)
def test_a_dashboard_that_breaks_a_rule_is_found(
    rule: str, plant: Callable[[Json], object]
) -> None:
    board = copy.deepcopy(load("holdfast-fleet"))
    plant(board)
    assert rule in {one.split(":")[0] for one in complaints(board)}


def test_every_rule_is_broken_once_here() -> None:
    assert {rule for rule, _ in PLANTED} == {rule.__name__ for rule in lint.RULES}
