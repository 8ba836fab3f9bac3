from __future__ import annotations

import copy
from typing import Any

import pytest
from tests.unit.dashboards.boards import UIDS, load

from holdfast_sidecar.cli.grafana.push import differences


@pytest.mark.parametrize("uid", UIDS)
def test_a_dashboard_does_not_differ_from_itself(uid: str) -> None:
    assert list(differences(load(uid), load(uid))) == []


def test_what_grafana_adds_or_counts_is_no_difference() -> None:
    there = load("holdfast-run") | {"id": 12, "version": 9, "schemaVersion": 42, "preload": False}
    there["panels"][1]["pluginVersion"] = "13.2.0"
    there["panels"][1].pop("transformations")
    assert list(differences(load("holdfast-run"), there)) == []


@pytest.mark.parametrize(
    ("wanted", "there", "line"),
    [
        ({"a": 1}, {}, "+ a: 1"),
        ({"a": {"b": "x"}}, {"a": {"b": "y"}}, '~ a.b: "y" → "x"'),
        ({"a": [1]}, {"a": 1}, "~ a: 1 → [1]"),
        ({"a": None}, {"a": 1}, "~ a: 1 → null"),
        (
            {"panels": [{"title": "Loss", "type": "stat"}]},
            {"panels": [{"title": "Loss", "type": "table"}]},
            '~ panels[Loss].type: "table" → "stat"',
        ),
    ],
)
def test_a_difference_is_told_by_its_place(
    wanted: dict[str, Any], there: dict[str, Any], line: str
) -> None:
    assert list(differences(wanted, there)) == [line]


def test_what_came_and_went_in_a_list_is_named() -> None:
    wanted = {"panels": [{"title": "A"}, {"title": "B"}]}
    there = {"panels": [{"title": "A"}, {"title": "C"}, {"title": "D"}]}
    assert list(differences(wanted, there)) == [
        "~ panels: 3 → 2 of them",
        "+ panels[B]",
        "- panels[C]",
        "- panels[D]",
    ]


def test_neither_side_is_changed_by_looking() -> None:
    wanted, there = load("holdfast-run"), load("holdfast-fleet")
    before = copy.deepcopy((wanted, there))
    assert list(differences(wanted, there))
    assert (wanted, there) == before
