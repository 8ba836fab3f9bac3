"""The alerts that come with Holdfast as data, and what is wrong with them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[3]
ALERTS = ROOT / "alerts"

HEADINGS = ["Meaning", "Impact", "Diagnosis", "Mitigation"]
SEVERITIES = {"critical", "warning", "info", "none"}
LAYERS = {"job", "slo", "checkpoint", "store", "node", "gpu", "fabric", "host", "sidecar", "meta"}
OF_NODES = {"node", "gpu", "fabric", "host", "sidecar"}
BOARDS = {
    "holdfast-fleet",
    "holdfast-run",
    "holdfast-ranks",
    "holdfast-node",
    "holdfast-recovery",
    "holdfast-self",
}
"""Uids of the dashboards."""

WITHOUT_RUN = {"HoldfastWatchdog"}
"""It is about no run."""


@dataclass(frozen=True)
class Alert:
    """One rule that alerts."""

    theme: str
    rule: dict[str, Any]

    @property
    def name(self) -> str:
        return str(self.rule["alert"])

    @property
    def labels(self) -> dict[str, str]:
        return dict(self.rule.get("labels", {}))

    @property
    def annotations(self) -> dict[str, str]:
        return dict(self.rule.get("annotations", {}))


def rules(folder: Path = ALERTS) -> Iterator[tuple[str, dict[str, Any]]]:
    for path in sorted(folder.glob("rules/*.yaml")):
        for group in yaml.safe_load(path.read_text())["groups"]:
            for rule in group["rules"]:
                yield path.stem, rule


def alerts(folder: Path = ALERTS) -> list[Alert]:
    return [Alert(theme, rule) for theme, rule in rules(folder) if "alert" in rule]


def cases(folder: Path = ALERTS) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Every case of the promtool tests, with its file."""
    for path in sorted(folder.glob("tests/*.yaml")):
        for case in yaml.safe_load(path.read_text())["tests"]:
            yield path, case


def troubles(folder: Path = ALERTS) -> list[str]:
    """What is missing or wrong, one line each."""
    there = alerts(folder)
    names = [alert.name for alert in there]
    found = [f"{name} is there twice" for name in sorted(set(names)) if names.count(name) > 1]
    known = list(cases(folder))
    for alert in there:
        wrong = [
            *_of_rule(alert),
            *_of_annotations(alert),
            *_of_runbook(folder / "runbooks" / f"{alert.name}.md", alert.name),
            *_of_cases(alert, [case for _, case in known]),
        ]
        found += [f"{alert.name}: {what}" for what in wrong]
    books = {path.stem for path in (folder / "runbooks").glob("*.md")}
    found += [f"{name}: a runbook and no alert" for name in sorted(books - set(names))]
    tested = {case["name"].split()[0] for _, case in known}
    found += [f"{name}: a test and no alert" for name in sorted(tested - set(names))]
    return found


def _of_rule(alert: Alert) -> Iterator[str]:
    if not re.fullmatch(r"Holdfast([A-Z][a-z0-9]+)+", alert.name):
        yield "its name is not Holdfast and words"
    if "for" not in alert.rule:
        yield "does not say for how long"
    if alert.labels.get("severity") not in SEVERITIES:
        yield f"severity {alert.labels.get('severity')}"
    if alert.labels.get("layer") not in LAYERS:
        yield f"layer {alert.labels.get('layer')}"
    for by in re.findall(r"\bby\s*\(([^)]*)\)", alert.rule["expr"]):
        if not by.startswith("cluster, run"):
            yield f"by ({by}) loses cluster or run"


def _of_annotations(alert: Alert) -> Iterator[str]:
    text = alert.annotations
    if not text.get("summary") or "{{" in text["summary"]:
        yield "its summary must be the same for all it is about"
    if not text.get("description"):
        yield "has no description"
    elif alert.name not in WITHOUT_RUN and "$labels.run" not in text["description"]:
        yield "its description does not name the run"
    elif alert.labels.get("layer") in OF_NODES and "$labels.node" not in text["description"]:
        yield "its description does not name the node"
    if text.get("runbook_url") != f"https://runbooks.example/holdfast/{alert.name}.md":
        yield f"runbook_url {text.get('runbook_url')}"
    yield from _of_dashboard(alert, text.get("dashboard_url", ""))


def _of_dashboard(alert: Alert, link: str) -> Iterator[str]:
    uid = re.match(r"https://grafana\.example/d/([\w-]+)\?", link)
    if uid is None or uid[1] not in BOARDS:
        yield f"dashboard_url leads to no dashboard: {link}"
    wanted = ["from=", "to="]
    if alert.name not in WITHOUT_RUN:
        wanted.append("var-run={{ $labels.run }}")
    if alert.labels.get("layer") in OF_NODES:
        wanted.append("var-node={{ $labels.node }}")
    yield from (f"dashboard_url lacks {part}" for part in wanted if part not in link)


def _of_runbook(path: Path, name: str) -> Iterator[str]:
    if not path.exists():
        yield "has no runbook"
        return
    title, *sections = re.split(r"^## ", path.read_text(), flags=re.MULTILINE)
    if title.split("\n", 1)[0] != f"# {name}":
        yield "its runbook has another title"
    parts = {part.split("\n", 1)[0]: part.partition("\n")[2].strip() for part in sections}
    if list(parts) != HEADINGS:
        yield f"headings of its runbook: {', '.join(parts)}"
    for heading, text in parts.items():
        if len(text) < 5 or re.search(r"\b(TODO|TBD|FIXME|XXX)\b", text):
            yield f"its runbook says nothing under {heading}"


def _of_cases(alert: Alert, known: list[dict[str, Any]]) -> Iterator[str]:
    own = [case for case in known if case["name"].split()[0] == alert.name]
    if not any(f" {word} " in case["name"] for case in own for word in ["fires"]):
        yield "no test lets it fire"
    if not any(" is quiet " in case["name"] for case in own):
        yield "no test has it quiet"
    for case in own:
        expected = [
            sample["labels"]
            for query in case["promql_expr_test"]
            if f'alertname="{alert.name}"' in query["expr"]
            for sample in query["exp_samples"]
        ]
        if bool(expected) != (" fires " in case["name"]):
            yield f"the test does not expect what it says: {case['name']}"
        if alert.name not in WITHOUT_RUN and not all('run="' in labels for labels in expected):
            yield f"fires without a run: {case['name']}"
