"""Every alert has a runbook, tests, links and labels; whatever of it is taken away is missed."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.alerts.shipped import ALERTS, BOARDS, ROOT, alerts, rules, troubles

PLANTED: dict[str, Callable[[Path], object]] = {
    "has no runbook": lambda folder: (folder / "runbooks/HoldfastNodeLost.md").unlink(),
    "says nothing under Impact": lambda folder: _edit(
        folder / "runbooks/HoldfastNodeLost.md",
        re.compile(r"## Impact\n.*?(?=\n## )", re.DOTALL),
        "## Impact\n",
    ),
    "headings of its runbook": lambda folder: _edit(
        folder / "runbooks/HoldfastNodeLost.md", re.compile("## Diagnosis"), "## Looking"
    ),
    "no test lets it fire": lambda folder: _edit(
        folder / "tests/nodes.yaml",
        re.compile("HoldfastNodeUnfit fires"),
        "HoldfastNodeUnfit is quiet",
    ),
    "no test has it quiet": lambda folder: _edit(
        folder / "tests/nodes.yaml",
        re.compile("HoldfastNodeUnfit is quiet"),
        "HoldfastNodeUnfit may be",
    ),
    "does not expect what it says": lambda folder: _edit(
        folder / "tests/nodes.yaml", re.compile("exp_samples:\n.*\n.*value: 1"), "exp_samples: []"
    ),
    "dashboard_url leads to no dashboard": lambda folder: _edit(
        folder / "rules/nodes.yaml", re.compile("/d/holdfast-node"), "/d/holdfast-gone"
    ),
    "dashboard_url lacks var-node": lambda folder: _edit(
        folder / "rules/nodes.yaml", re.compile("&var-node="), "&node="
    ),
    "severity": lambda folder: _edit(
        folder / "rules/nodes.yaml", re.compile("severity: critical"), "severity: high"
    ),
    "for how long": lambda folder: _edit(
        folder / "rules/nodes.yaml", re.compile(" +for: 15s\n"), ""
    ),
    "loses cluster or run": lambda folder: _edit(
        folder / "rules/host.yaml", re.compile(r"by \(cluster, run, node\)"), "by (node)"
    ),
    "a runbook and no alert": lambda folder: _edit(
        folder / "rules/watchdog.yaml", re.compile("HoldfastWatchdog"), "HoldfastDog"
    ),
    "is there twice": lambda folder: shutil.copy(
        folder / "rules/watchdog.yaml", folder / "rules/again.yaml"
    ),
}
"""What is said -> what was done to a copy."""


def _edit(path: Path, pattern: re.Pattern[str], by: str) -> None:
    text, count = pattern.subn(by, path.read_text())
    assert count
    path.write_text(text)


def test_nothing_is_missing_or_wrong() -> None:
    assert troubles() == []


@pytest.mark.parametrize("said", PLANTED)
def test_what_is_taken_away_is_missed(said: str, tmp_path: Path) -> None:
    copy = tmp_path / "alerts"
    shutil.copytree(ALERTS, copy)
    PLANTED[said](copy)
    assert any(said in line for line in troubles(copy)), troubles(copy)


def test_the_dashboards_that_alerts_lead_to_are_there() -> None:
    boards = [json.loads(path.read_text()) for path in ROOT.glob("dashboards/*.json")]
    assert {board.get("uid") for board in boards} >= BOARDS


def test_pages_are_few_and_all_severities_are_used() -> None:
    by = {alert.name: alert.labels["severity"] for alert in alerts()}
    assert set(by.values()) == {"critical", "warning", "info", "none"}
    pages = [name for name, severity in by.items() if severity == "critical"]
    assert len(pages) < len(by) / 2


def test_recording_rules_are_named_by_level_metric_and_operation() -> None:
    names = [rule["record"] for _, rule in rules() if "record" in rule]
    assert len(names) == len(set(names))
    for name in names:
        assert re.fullmatch(r"((run|node):holdfast_\w+|holdfast_goodput):\w+", name)
