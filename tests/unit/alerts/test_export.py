"""`holdfast alerts export`: what it writes is what there is, with links that lead somewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from tests.unit.alerts.shipped import ALERTS, alerts

from holdfast_sidecar.cli.main import cli

LINKS = ("--runbook-url", "https://wiki.test/h/", "--dashboard-url", "https://grafana.test/g")


def export(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["alerts", "export", *arguments], prog_name="holdfast")


def shipped_groups() -> list[Any]:
    paths = sorted(ALERTS.glob("rules/*.yaml"))
    return [group for path in paths for group in yaml.safe_load(path.read_text())["groups"]]


def test_every_rule_file_is_comments_and_groups() -> None:
    for path in ALERTS.glob("rules/*.yaml"):
        text = path.read_text()
        assert text.count("\ngroups:\n") == 1
        head = text.partition("\ngroups:\n")[0]
        assert all(line.startswith("#") for line in head.splitlines() if line)


def test_all_rules_come_as_one_file_with_comments() -> None:
    done = export()
    assert done.exit_code == 0
    assert yaml.safe_load(done.stdout) == {"groups": shipped_groups()}
    assert "# " in done.stdout
    assert "say where with --runbook-url" in done.stderr


def test_links_lead_where_they_are_told_to() -> None:
    done = export(*LINKS)
    assert done.stderr == ""
    assert "example" not in done.stdout
    for group in yaml.safe_load(done.stdout)["groups"]:
        for rule in group["rules"]:
            if "alert" in rule:
                url = rule["annotations"]["runbook_url"]
                assert url == f"https://wiki.test/h/{rule['alert']}.md"
                board = rule["annotations"]["dashboard_url"]
                assert board.startswith("https://grafana.test/g/d/holdfast-")


def test_objects_of_kubernetes_hold_the_same_groups() -> None:
    done = export("--format", "kubernetes", "--namespace", "mon", "--label", "release=kps", *LINKS)
    documents = list(yaml.safe_load_all(done.stdout))
    for document in documents:
        assert document["apiVersion"] == "monitoring.coreos.com/v1"
        assert document["kind"] == "PrometheusRule"
        assert document["metadata"]["namespace"] == "mon"
        assert document["metadata"]["labels"]["release"] == "kps"
    names = [document["metadata"]["name"] for document in documents]
    assert len(names) == len(set(names)) == len(list(ALERTS.glob("rules/*.yaml")))
    held = [group for document in documents for group in document["spec"]["groups"]]
    assert [group["name"] for group in held] == [group["name"] for group in shipped_groups()]
    assert [len(group["rules"]) for group in held] == [len(g["rules"]) for g in shipped_groups()]
    assert held[0]["rules"][0]["expr"] == shipped_groups()[0]["rules"][0]["expr"]


def test_a_folder_gets_rules_runbooks_and_routes_and_nothing_half_written(tmp_path: Path) -> None:
    out = tmp_path / "new" / "alerting"
    done = export("--out", str(out), *LINKS)
    assert done.exit_code == 0
    written = sorted(str(path.relative_to(out)) for path in out.rglob("*") if path.is_file())
    assert f"wrote {len(written)} files" in done.stderr
    assert {"alertmanager.yml", "rules/gpu.yaml", "runbooks/HoldfastNodeLost.md"} <= set(written)
    assert len([name for name in written if name.startswith("runbooks/")]) == len(alerts())
    assert not [name for name in written if "unfinished" in name]


def test_routes_unlike_the_shipped_ones_are_left_and_get_them_beside(tmp_path: Path) -> None:
    export("--out", str(tmp_path), *LINKS)
    routes, beside = tmp_path / "alertmanager.yml", tmp_path / "alertmanager.yml.new"
    shipped = routes.read_text()
    assert not beside.exists()
    routes.write_text("route: {receiver: mine}\n")
    done = export("--out", str(tmp_path), *LINKS)
    assert done.exit_code == 0
    assert routes.read_text() == "route: {receiver: mine}\n"
    assert beside.read_text() == shipped
    assert "was left as it is; compare it with alertmanager.yml.new" in done.stderr


def test_a_folder_for_kubernetes_gets_objects_and_runbooks(tmp_path: Path) -> None:
    export("--format", "kubernetes", "--out", str(tmp_path))
    names = {path.name for path in tmp_path.glob("*.yaml")}
    assert "holdfast-gpu.yaml" in names
    assert (tmp_path / "runbooks/HoldfastNodeLost.md").exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--format", "nagios"], "'nagios' is not one of"),
        (["--runbook-url", "wiki"], "--runbook-url 'wiki': expected http:// or https://"),
        (["--dashboard-url", "https://g.test/?a=1"], "expected http:// or https://"),
        (["--format", "kubernetes", "--label", "release"], "expected KEY=VALUE"),
        (["--format", "kubernetes", "--label", "release=-"], "expected KEY=VALUE"),
        (["--format", "kubernetes", "--namespace", "a b"], "--namespace 'a b': Kubernetes takes"),
        (["--format", "kubernetes", "--namespace", "Mon"], "--namespace 'Mon': Kubernetes takes"),
        (["--format", "kubernetes", "--namespace", "m-"], "--namespace 'm-': Kubernetes takes"),
        (["--format", "kubernetes", "--namespace", "m" * 64], "63 at most"),
        (["--label", "a=b"], "are for --format kubernetes"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(arguments: list[str], says: str) -> None:
    done = export(*arguments)
    assert done.exit_code == 2
    assert says in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


def test_a_folder_that_is_a_file_is_one_line_and_exit_2(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    done = export("--out", str(tmp_path / "taken"))
    assert done.exit_code == 2
    assert done.stderr.startswith("holdfast: can't write ")
    assert done.stderr.count("\n") == 1
