"""promtool and amtool themselves: rules, their tests, what annotations become, routes."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.servers import required
from tests.unit.alerts.shipped import ALERTS, alerts, cases

pytestmark = pytest.mark.prometheus


def run(program: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Its answer; skipped where it is not installed, which is a failure in CI."""
    return subprocess.run(
        [required(program), *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_the_rules_are_valid() -> None:
    done = run("promtool", "check", "rules", *sorted(ALERTS.glob("rules/*.yaml")))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("path", sorted(ALERTS.glob("tests/*.yaml")), ids=lambda path: path.stem)
def test_every_alert_fires_and_is_quiet_as_its_tests_say(path: Path) -> None:
    done = run("promtool", "test", "rules", path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_tests_of_the_rules_can_fail(tmp_path: Path) -> None:
    shutil.copytree(ALERTS, tmp_path / "alerts")
    rules = tmp_path / "alerts/rules/host.yaml"
    rules.write_text(rules.read_text().replace(") < 3", ") < 1"))
    done = run("promtool", "test", "rules", tmp_path / "alerts/tests/host.yaml")
    assert done.returncode == 1
    assert "HoldfastHostHot" in done.stdout + done.stderr


def told(path: Path, scratch: Path) -> dict[str, list[str]]:
    """Name of an alert -> its annotations as they are sent, for each time that it fires in a file
    of tests. promtool shows them where it was told to expect none."""
    document = yaml.safe_load(path.read_text())
    document["rule_files"] = [
        str((path.parent / name).resolve()) for name in document["rule_files"]
    ]
    document["tests"] = [_without_expectation(case) for case in document["tests"] if _fires(case)]
    scratch.write_text(yaml.safe_dump(document))
    done = run("promtool", "test", "rules", scratch)
    assert done.returncode == 1, done.stdout + done.stderr
    found: dict[str, list[str]] = {}
    pattern = r'Labels:\{.*?alertname="(\w+)".*\n\s+(Annotations:.*)'
    for name, text in re.findall(pattern, done.stdout + done.stderr):
        found.setdefault(name, []).append(text)
    return found


def _fires(case: dict[str, Any]) -> bool:
    return " fires " in case["name"]


def _without_expectation(case: dict[str, Any]) -> dict[str, Any]:
    name = case["name"].split()[0]
    times = [
        query["eval_time"]
        for query in case.pop("promql_expr_test")
        if f'alertname="{name}"' in query["expr"] and query["exp_samples"]
    ]
    case["alert_rule_test"] = [
        {"eval_time": at, "alertname": name, "exp_alerts": []} for at in times
    ]
    return case


@pytest.fixture(scope="module")
def sent(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    scratch = tmp_path_factory.mktemp("told") / "tests.yaml"
    found: dict[str, str] = {}
    for path in sorted(ALERTS.glob("tests/*.yaml")):
        for name, texts in told(path, scratch).items():
            found[name] = found.get(name, "") + "\n".join(texts)
    return found


def test_no_annotation_has_a_hole(sent: dict[str, str]) -> None:
    assert sent.keys() == {alert.name for alert in alerts()}
    holes = re.compile(
        r"<no value>|<error|error expanding|%!|\{\{|var-\w+=&|\b(on|of) [.,(]|: *[.,]"
    )
    assert {name: text for name, text in sent.items() if holes.search(text)} == {}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "HoldfastNodeLost",
            ["node b", "Incident i1: node_lost", "Blamed for: node_lost", "Ranks there: 2 3."],
        ),
        ("HoldfastJobStopped", ["exit code 65", "Incident i1: crash.", "exit code 75", "gpu on b"]),
        ("HoldfastGpuXidHardware", ["GPU 3 of a (rank 3)", "XID 79", "reboot_node"]),
        ("HoldfastGpuLost", ["GPU 3 does not answer"]),
        ("HoldfastJobNotStarted", ["for eight minutes", "8 GPUs (or ranks)"]),
        ("HoldfastOwnErrors", ["that ended in one: 1.", "since they started: 0."]),
        ("HoldfastNodesUnscraped", ["targets: b. Nothing", "2 nodes", "targets: c d. Nothing"]),
        ("HoldfastLinkDown", ["RDMA port mlx5_0/1 is not active", "eth1 has no carrier"]),
        ("HoldfastNodeUnfit", ["Not passed: nvlink."]),
        ("HoldfastStragglerPersistent", ["Rank 3 on b", "gpu_clock", "20%"]),
        ("HoldfastGoodputBurnFast", ["90%", "restart: 90%"]),
        ("HoldfastNodeLost", ["var-run=r&var-node=b&from=-", "&to=now"]),
    ],
)
def test_a_page_names_who_and_why(sent: dict[str, str], name: str, words: list[str]) -> None:
    assert [word for word in words if word not in sent[name]] == []


@pytest.mark.parametrize("name", ["HoldfastNodeLost", "HoldfastNodeReplaced"])
def test_a_lost_node_is_told_with_the_incident_that_took_it_and_no_earlier_one(
    sent: dict[str, str], name: str
) -> None:
    assert "Incident i1: node_lost." in sent[name]
    assert "i0" not in sent[name]


def test_the_routes_are_valid() -> None:
    done = run("amtool", "check-config", ALERTS / "alertmanager.yml")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("name", "receiver"),
    [
        ("HoldfastWatchdog", "watchdog"),
        ("HoldfastNodeLost", "pager"),
        ("HoldfastJobStopped", "pager"),
        ("HoldfastStoreDown", "pager"),
        ("HoldfastLinkFlapping", "tickets"),
        ("HoldfastNodeReplaced", "tickets"),
        ("HoldfastGoodputBurnSlow", "tickets"),
        ("HoldfastGpuUncorrectableEcc", "tickets"),
        ("HoldfastJobPaused", "nobody"),
        ("HoldfastHardwareTrouble", "nobody"),
    ],
)
def test_an_alert_goes_to_whom_it_concerns(name: str, receiver: str) -> None:
    (alert,) = [alert for alert in alerts() if alert.name == name]
    labels = {"alertname": name, **alert.labels, "run": "r", "node": "a"}
    done = run(
        "amtool",
        "config",
        "routes",
        "test",
        f"--config.file={ALERTS / 'alertmanager.yml'}",
        f"--verify.receivers={receiver}",
        *(f"{label}={value}" for label, value in labels.items()),
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_inhibition_speaks_of_alerts_that_exist() -> None:
    document = yaml.safe_load((ALERTS / "alertmanager.yml").read_text())
    names = {alert.name for alert in alerts()}
    for rule in document["inhibit_rules"]:
        for matcher in [*rule["source_matchers"], *rule["target_matchers"]]:
            taken = re.match(r"alertname (?:=~|!~|=|!=) \"?(.*?)\"?$", matcher)
            if taken is not None:
                value = taken[1]
                pattern = re.compile(value)
                assert any(pattern.fullmatch(name) for name in names), matcher
                for word in re.findall(r"\bHoldfast\w+(?![\w(.*])", value):
                    assert word in names, word


def test_cases_have_names_of_their_own() -> None:
    names = [case["name"] for _, case in cases()]
    assert sorted(names) == sorted(set(names))
