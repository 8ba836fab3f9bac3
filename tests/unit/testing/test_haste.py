"""Shorter waits are the shipped ones divided, and nothing else of a file changes."""

from __future__ import annotations

import re

import pytest
import yaml
from testing.alerting import WAITS, hastened, seconds

from holdfast_sidecar.config.paths import asset

RULES = sorted(asset("alerts/rules").glob("*.yaml"))
OTHERS = [asset("alerts/alertmanager.yml"), asset("deploy/prometheus/prometheus.yml")]


def waits(found: object) -> list[float]:
    """Every wait of a document, in its order."""
    if isinstance(found, dict):
        own = [seconds(str(value)) for key, value in found.items() if key in WAITS]
        return own + [wait for value in found.values() for wait in waits(value)]
    if isinstance(found, list):
        return [wait for value in found for wait in waits(value)]
    return []


@pytest.mark.parametrize("path", [*RULES, *OTHERS], ids=lambda path: path.name)
def test_every_wait_of_the_shipped_files_is_divided(path) -> None:
    text = path.read_text()
    shipped, shorter = waits(yaml.safe_load(text)), waits(yaml.safe_load(hastened(text, 5.0)))
    assert shipped
    assert shorter == pytest.approx([wait / 5 for wait in shipped])


@pytest.mark.parametrize("path", RULES, ids=lambda path: path.name)
def test_beside_waits_and_silences_no_line_changes(path) -> None:
    text = path.read_text()
    for old, new in zip(text.splitlines(), hastened(text, 5.0).splitlines(), strict=True):
        if old != new:
            key = old.strip().removeprefix("- ").partition(":")[0]
            assert key in WAITS or "node:holdfast_silence:seconds[" in old, old


def test_the_silence_of_a_node_is_divided() -> None:
    rule = "last_over_time(node:holdfast_silence:seconds[1m]) > 15 < 3600"
    assert hastened(rule, 10.0) == "last_over_time(node:holdfast_silence:seconds[1m]) > 1.5 < 3600"


def test_all_silences_that_rules_ask_for_are_found() -> None:
    text = "".join(path.read_text() for path in RULES)
    asked = re.findall(r"node:holdfast_silence:seconds\[\w+\]\) > \d+", text)
    assert len(asked) == text.count("last_over_time(node:holdfast_silence:seconds")
    assert len(asked) >= 3


def test_shipped_files_stay_as_they_are_without_haste() -> None:
    for path in (*RULES, *OTHERS):
        assert hastened(path.read_text(), 1.0) == path.read_text()


@pytest.mark.parametrize(
    ("text", "expected"), [("1m30s", 90.0), ("0s", 0.0), ("1500ms", 1.5), ("12h", 43200.0)]
)
def test_durations_are_read_as_prometheus_writes_them(text: str, expected: float) -> None:
    assert seconds(text) == expected
