"""`holdfast alerts check`: what it finds, with promtool and without."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.servers import required
from tests.unit.alerts.shipped import ALERTS

from holdfast_sidecar.cli.alerts import checking, programs
from holdfast_sidecar.cli.main import cli

RULE = """groups:
  - name: mine
    rules:
      - alert: Mine
        expr: {expression}
"""


def check(*paths: Path) -> Result:
    return CliRunner().invoke(cli, ["alerts", "check", *map(str, paths)], prog_name="holdfast")


@pytest.fixture
def nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs.shutil, "which", lambda name: None)


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_text(RULE.format(expression="holdfast_store_up == 0"))
    return path


@pytest.mark.usefixtures("nothing_installed")
def test_without_promtool_the_rest_is_checked_and_that_is_said(mine: Path) -> None:
    done = check(mine)
    assert done.exit_code == 0, done.output
    assert "ok        files are YAML" in done.stdout
    assert "promtool is not installed (Debian: apt-get install prometheus)" in done.stdout


def test_a_metric_that_does_not_exist_is_named(mine: Path) -> None:
    mine.write_text(RULE.format(expression="holdfast_store_upp == 0"))
    done = check(mine)
    assert done.exit_code == 1
    assert "mine.yaml: holdfast_store_upp is no metric of Holdfast" in done.stdout


@pytest.mark.usefixtures("nothing_installed")
def test_a_file_that_is_no_rule_file_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "other.yaml").write_text("a: 1\n")
    done = check(tmp_path / "other.yaml")
    assert done.exit_code == 1
    assert "has no `groups:`" in done.stdout


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("gone.yaml", None, "can't read"),
        ("torn.yaml", "groups: [\n", "is no YAML"),
        ("empty", None, "can't read"),
    ],
)
def test_what_can_t_be_read_is_one_line_and_exit_2(
    tmp_path: Path, name: str, content: str | None, says: str
) -> None:
    if content is not None:
        (tmp_path / name).write_text(content)
    done = check(tmp_path / name)
    assert done.exit_code == 2
    assert says in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_folder_without_rules_is_one_line_and_exit_2(tmp_path: Path) -> None:
    done = check(tmp_path)
    assert done.exit_code == 2
    assert "has no rule files" in done.stderr


def test_what_was_exported_is_found_again(tmp_path: Path) -> None:
    shutil.copytree(ALERTS, tmp_path / "alerts")
    given = checking.of_folder(tmp_path / "alerts")
    assert len(given.rules) == len(list(ALERTS.glob("rules/*.yaml")))
    assert given.tests
    assert given.routes == tmp_path / "alerts/alertmanager.yml"
    flat = checking.of_folder(ALERTS / "rules")
    assert len(flat.rules) == len(given.rules)
    assert flat.routes is None


def exported(*arguments: str) -> str:
    command = ["alerts", "export", "--format", "kubernetes", *arguments]
    return CliRunner().invoke(cli, command, prog_name="holdfast").stdout


@pytest.mark.prometheus
def test_what_was_exported_for_kubernetes_is_checked_like_files(tmp_path: Path) -> None:
    required("promtool")
    exported("--out", str(tmp_path / "k"))
    (tmp_path / "one.yaml").write_text(exported("--namespace", "mon"))
    for path, files in ((tmp_path / "k", 11), (tmp_path / "one.yaml", 1)):
        done = check(path)
        assert done.exit_code == 0, done.output
        assert f"promtool check rules: {files} rule file{'s' * (files > 1)}" in done.stdout
        assert done.stdout.count("ok    ") == 3


@pytest.mark.usefixtures("nothing_installed")
def test_a_metric_that_does_not_exist_is_named_in_an_object_too(tmp_path: Path) -> None:
    path = tmp_path / "k.yaml"
    path.write_text(exported().replace("holdfast_gpu_busy_ratio", "holdfast_gpu_buzy_ratio"))
    done = check(path)
    assert done.exit_code == 1
    assert "k.yaml: holdfast_gpu_buzy_ratio is no metric" in done.stdout


@pytest.mark.prometheus
def test_what_promtool_says_of_an_object_has_its_file_and_line(tmp_path: Path) -> None:
    required("promtool")
    path = tmp_path / "k.yaml"
    text = exported().replace("keep_firing_for: 1m", "keep_fire: 1m", 1)
    path.write_text(text)
    line = text[: text.index("keep_fire:")].count("\n") + 1
    done = check(path)
    assert done.exit_code == 1
    assert f"{path}: " in done.stdout
    assert f"line {line}: field keep_fire not found" in done.stdout


@pytest.mark.parametrize(
    "text",
    [
        "a: 1\n",
        "kind: PrometheusRule\nspec:\n  rules: []\n",
        "kind: PrometheusRule\nmetadata: {}\n",
        "kind: Deployment\nspec:\n  groups: []\n",
    ],
)
def test_where_no_rule_was_read_nothing_is_said_to_be_right(tmp_path: Path, text: str) -> None:
    (tmp_path / "other.yaml").write_text(text)
    done = check(tmp_path / "other.yaml")
    assert done.exit_code == 1
    assert "other.yaml: has no `groups:`" in done.stdout
    assert len(done.stdout.splitlines()) == 2


def test_a_rule_file_of_several_documents_is_wrong_as_prometheus_reads_one(mine: Path) -> None:
    mine.write_text(f"{mine.read_text()}---\n{mine.read_text()}")
    done = check(mine)
    assert done.exit_code == 1
    assert "mine.yaml: holds 2 documents, of which Prometheus reads one" in done.stdout


@pytest.mark.prometheus
def test_what_comes_with_holdfast_is_right() -> None:
    done = check(ALERTS / "rules", ALERTS / "alertmanager.yml")
    assert done.exit_code == 0, done.output


@pytest.mark.prometheus
def test_promtool_s_words_are_passed_on(mine: Path) -> None:
    required("promtool")
    mine.write_text(RULE.format(expression="sum by (holdfast_store_up"))
    done = check(mine)
    assert done.exit_code == 1
    assert "WRONG     promtool check rules: 1 rule file" in done.stdout
