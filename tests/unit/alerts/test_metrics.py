"""Rules, links and runbooks name only metrics that Holdfast tells."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.alerts.shipped import ALERTS, cases, rules

from holdfast_sidecar.cli.alerts_check import known_names, unknown_names, used_names
from holdfast_sidecar.export.promql import troubles

KNOWN = known_names()


def texts() -> dict[str, str]:
    return {path.name: path.read_text() for path in ALERTS.glob("rules/*.yaml")}


def test_every_metric_of_the_rules_exists() -> None:
    assert unknown_names(texts(), KNOWN) == []


def test_every_metric_of_the_tests_exists() -> None:
    made = {
        name
        for _, case in cases()
        for one in case["input_series"] or []
        for name in used_names(one["series"].partition("{")[0])
    }
    assert made - KNOWN == set()


def test_a_name_that_nobody_tells_is_found_with_one_that_is_like_it() -> None:
    planted = {"mine.yaml": "expr: holdfast_store_upp == 0"}
    assert unknown_names(planted, KNOWN) == [
        "mine.yaml: holdfast_store_upp is no metric of Holdfast (do you mean holdfast_store_up?)"
    ]


@pytest.mark.parametrize(
    "text",
    [
        "# holdfast_gone was renamed",
        "- name: holdfast_gone",
        "- record: run:holdfast_gone:sum\n  expr: sum(up)\n- expr: run:holdfast_gone:sum > 1",
        "expr: rate(holdfast_checkpoint_duration_seconds_sum[5m])",
    ],
)
def test_comments_groups_recorded_names_and_summaries_are_no_trouble(text: str) -> None:
    assert unknown_names({"mine.yaml": text}, KNOWN) == []


def test_runbooks_name_only_metrics_that_exist() -> None:
    recorded = {"holdfast_goodput", "holdfast_sidecar"}
    named = {
        f"{path.name}: {name}"
        for path in Path(ALERTS / "runbooks").glob("*.md")
        for name in used_names(path.read_text())
        if name.partition(":")[0] not in KNOWN | recorded
    }
    assert named == set()


def test_every_expression_fits_the_catalogue() -> None:
    """Labels that exist, rates of counters and of nothing else."""
    recorded = {rule["record"] for _, rule in rules() if "record" in rule}
    wrong = [
        f"{rule.get('alert') or rule['record']}: {trouble.words}"
        for _, rule in rules()
        for trouble in troubles(rule["expr"], recorded=recorded)
    ]
    assert wrong == []
