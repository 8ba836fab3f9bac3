"""docs/alerts.md tells of every alert, and of what became of each that was thought of."""

from __future__ import annotations

import importlib.util
import re
from types import ModuleType

from tests.unit.alerts.shipped import ROOT, alerts

PAGE = (ROOT / "docs" / "alerts.md").read_text()


def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("alert_table", ROOT / "scripts/alert_table.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_table_is_current() -> None:
    assert script().with_table(PAGE) == PAGE, "run python scripts/alert_table.py"


def test_every_alert_that_was_thought_of_is_there_or_has_a_reason() -> None:
    rows = re.findall(r"^\| (\d+) \| (\w+) \| (.*) \|$", PAGE, re.MULTILINE)
    assert [int(number) for number, _, _ in rows] == list(range(1, len(rows) + 1))
    assert len(rows) == 56
    names = {alert.name for alert in alerts()}
    for _, name, became in rows:
        mentioned = set(re.findall(r"`(Holdfast\w+)`", became))
        assert mentioned <= names, f"{name}: {mentioned - names}"
        if not mentioned:
            assert name in names or became.startswith("dropped: ")


def test_every_kind_of_finding_is_told_by_some_alert_or_has_a_reason() -> None:
    from holdfast_sidecar.records.findings import Kind

    rows = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", PAGE, re.MULTILINE))
    assert rows.keys() >= {kind.value for kind in Kind}
    names = {alert.name for alert in alerts()}
    told = {name for kind in Kind for name in re.findall(r"`(Holdfast\w+)`", rows[kind.value])}
    assert told <= names
