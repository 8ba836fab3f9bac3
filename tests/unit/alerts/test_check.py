"""`holdfast alerts check`: what it finds, with promtool and without."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.servers import required
from tests.unit.alerts.shipped import ALERTS

from holdfast_sidecar.cli import alerts_check
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
    monkeypatch.setattr(shutil, "which", lambda name: None)


@pytest.fixture
def no_yaml(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)


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
    given = alerts_check.of_folder(tmp_path / "alerts")
    assert len(given.rules) == len(list(ALERTS.glob("rules/*.yaml")))
    assert given.tests
    assert given.routes == [tmp_path / "alerts/alertmanager.yml"]
    flat = alerts_check.of_folder(ALERTS / "rules")
    assert len(flat.rules) == len(given.rules)
    assert flat.routes == []


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


@pytest.mark.parametrize("text", ["", "# nothing yet\n---\n"])
def test_an_empty_file_is_wrong(tmp_path: Path, text: str) -> None:
    (tmp_path / "mine.yaml").write_text(text)
    done = check(tmp_path / "mine.yaml")
    assert done.exit_code == 1
    assert "mine.yaml: is empty: no rule is in it" in done.stdout


@pytest.mark.usefixtures("no_yaml", "nothing_installed")
def test_an_empty_file_is_wrong_without_any_help_too() -> None:
    assert check(Path("/dev/null")).exit_code == 1


AS_LISTED = """apiVersion: v1
items:
- apiVersion: monitoring.coreos.com/v1
  kind: PrometheusRule
  spec:
    groups:
    - name: mine
      rules: []
kind: List
"""


@pytest.mark.usefixtures("nothing_installed")
@pytest.mark.parametrize(
    "text", [AS_LISTED, "kind: PrometheusRule\nspec: {groups: [{name: mine, rules: []}]}\n"]
)
def test_objects_in_a_form_that_is_not_read_are_said_to_be_so(tmp_path: Path, text: str) -> None:
    (tmp_path / "k.yaml").write_text(text)
    done = check(tmp_path / "k.yaml")
    assert done.exit_code == 1
    assert "write each as a document of its own, with `spec:` on a line of its own" in done.stdout
    assert "has no `groups:`" not in done.stdout


@pytest.mark.usefixtures("nothing_installed")
def test_what_alertmanager_reads_is_known_by_what_is_in_it(tmp_path: Path, mine: Path) -> None:
    path = tmp_path / "am.yml"
    path.write_text((ALERTS / "alertmanager.yml").read_text())
    done = check(path)
    assert done.exit_code == 0, done.output
    assert "amtool is not installed" in done.stdout
    given = alerts_check.of_folder(tmp_path)
    assert (given.rules, given.routes) == ([mine], [path])


@pytest.mark.prometheus
@pytest.mark.usefixtures("no_yaml")
def test_what_is_no_yaml_is_exit_2_by_promtool_s_word(tmp_path: Path) -> None:
    required("promtool")
    path = tmp_path / "torn.yaml"
    path.write_text("groups: [\n")
    done = check(path)
    assert done.exit_code == 2
    assert (
        done.stderr == f"holdfast: {path} is no YAML: line 1: did not find expected node content\n"
    )
    path.write_text("groops: []\n")
    assert check(path).exit_code == 1, "YAML of another shape"


def test_what_takes_long_is_said_before_to_a_terminal(
    mine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given = alerts_check.Given([mine], [mine])
    said = alerts_check.examine(given)
    soon = next(one for one in said if isinstance(one, alerts_check.Soon))
    alerts_check.announce(soon)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    alerts_check.announce(soon)
    assert capsys.readouterr().err.startswith("holdfast: promtool runs the tests of the rules")
