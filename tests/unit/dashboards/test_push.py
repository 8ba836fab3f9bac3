"""The real grafana-client against a server that checks what it is asked."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result
from tests import grafana_server
from tests.extras import package
from tests.grafana_server import TOKEN, FakeGrafana
from tests.unit.dashboards.boards import UIDS, load

package("grafana_client")

Holdfast = Callable[..., Result]


def push(holdfast: Holdfast, grafana: FakeGrafana, *more: str) -> Result:
    return holdfast("push", "--grafana", grafana.url, *more)


def refusal(result: Result) -> str:
    """The one line of what was refused."""
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert result.stderr.startswith("holdfast: ")
    assert result.stderr.count("\n") == 1
    assert TOKEN not in result.output
    return result.stderr


def test_all_dashboards_are_created_in_a_folder_of_their_own(
    holdfast: Holdfast, grafana: FakeGrafana
) -> None:
    result = push(holdfast, grafana)
    assert result.exit_code == 0, result.output
    assert grafana.folders == {"holdfast": "Holdfast"}
    assert sorted(grafana.boards) == list(UIDS)
    assert {kept["folder"] for kept in grafana.boards.values()} == {"holdfast"}
    assert f"{grafana.url}/d/holdfast-run" in result.stdout
    assert "6 of 6 dashboards pushed in Holdfast" in result.stdout


@pytest.mark.parametrize("migrates", [False, True])
def test_a_second_push_changes_nothing(
    holdfast: Holdfast, grafana: FakeGrafana, migrates: bool
) -> None:
    grafana.migrates = migrates
    push(holdfast, grafana)
    before = len(grafana.changes)
    result = push(holdfast, grafana)
    assert result.exit_code == 0, result.output
    assert grafana.changes[before:] == []
    assert "nothing to push" in result.stdout


def test_only_what_differs_is_pushed(holdfast: Holdfast, grafana: FakeGrafana) -> None:
    push(holdfast, grafana)
    grafana.boards["holdfast-run"]["model"]["panels"][1]["title"] = "Somebody's"
    before = len(grafana.changes)
    result = push(holdfast, grafana)
    assert grafana.changes[before:] == ["POST /api/dashboards/db"]
    assert grafana.boards["holdfast-run"]["model"]["panels"] == load("holdfast-run")["panels"]
    assert "1 of 6 dashboards pushed" in result.stdout


def test_a_dry_run_says_line_by_line_what_differs_and_changes_nothing(
    holdfast: Holdfast, grafana: FakeGrafana
) -> None:
    first = push(holdfast, grafana, "--dry-run")
    assert grafana.changes == []
    assert first.stdout.splitlines()[0] == "create folder Holdfast (holdfast)"
    assert "6 of 6 dashboards would be pushed in Holdfast" in first.stdout
    push(holdfast, grafana)
    changed = grafana.boards["holdfast-run"]["model"]
    changed["refresh"] = "5m"
    changed["panels"][2]["fieldConfig"]["defaults"]["unit"] = "bytes"
    changed["panels"].pop()
    before = len(grafana.changes)
    lines = push(holdfast, grafana, "--dry-run").stdout.splitlines()
    assert grafana.changes[before:] == []
    assert '  ~ refresh: "5m" → "30s"' in lines
    assert any(line.startswith("  ~ panels: ") for line in lines)
    assert "same    holdfast-fleet  Holdfast / Fleet" in lines


def test_a_dashboard_elsewhere_is_moved_into_the_folder(
    holdfast: Holdfast, grafana: FakeGrafana
) -> None:
    push(holdfast, grafana, "--folder-uid", "")
    assert {kept["folder"] for kept in grafana.boards.values()} == {""}
    assert grafana.folders == {}
    assert "~ folder: the top → Holdfast" in push(holdfast, grafana, "--dry-run").stdout
    push(holdfast, grafana)
    assert {kept["folder"] for kept in grafana.boards.values()} == {"holdfast"}


def test_a_folder_and_a_data_source_can_be_named(holdfast: Holdfast, grafana: FakeGrafana) -> None:
    grafana.folders["ml"] = "Machine learning"
    grafana.sources.append({"uid": "mimir-1", "name": "Mimir", "type": "prometheus"})
    for name in ("Mimir", "mimir-1"):
        result = push(holdfast, grafana, "--folder-uid", "ml", "--data-source", name)
        assert result.exit_code == 0, result.output
    for kept in grafana.boards.values():
        assert kept["folder"] == "ml"
        chosen = kept["model"]["templating"]["list"][0]["current"]
        assert chosen == {"selected": False, "text": "Mimir", "value": "mimir-1"}
    assert "nothing to push" in result.stdout


def test_a_token_that_may_not_list_data_sources_can_push(
    holdfast: Holdfast, grafana: FakeGrafana
) -> None:
    grafana.may_list_sources = False
    assert push(holdfast, grafana).exit_code == 0
    assert "may not list data sources" in refusal(push(holdfast, grafana, "--data-source", "Mimir"))


def test_the_token_is_taken_from_a_file(
    holdfast: Holdfast, grafana: FakeGrafana, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HOLDFAST_GRAFANA_TOKEN")
    assert "no token" in refusal(push(holdfast, grafana))
    for content, says in (("", "is empty"), ("two words", "is no token")):
        (tmp_path / "token").write_text(content)
        assert says in refusal(push(holdfast, grafana, "--token-file", "token"))
    assert "No such file" in refusal(push(holdfast, grafana, "--token-file", "absent"))
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    assert push(holdfast, grafana, "--token-file", "token").exit_code == 0


def test_a_grafana_below_a_path_is_found(holdfast: Holdfast) -> None:
    with grafana_server.running(FakeGrafana(prefix="/monitoring")) as grafana:
        assert push(holdfast, grafana).exit_code == 0
        assert sorted(grafana.boards) == list(UIDS)
        address = grafana.url.removesuffix("/monitoring")
        assert "with the sub-path" in refusal(holdfast("push", "--grafana", address))
        assert grafana.broken == []


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("grafana:3000", "is no address"),
        ("ftp://grafana", "is no address"),
        ("https://", "is no address"),
        ("http://grafana:port", "is no address"),
        ("http://admin:admin" + "@grafana:3000", "visible to everyone"),
    ],
)
def test_an_address_that_is_none_is_refused(holdfast: Holdfast, address: str, says: str) -> None:
    assert says in refusal(holdfast("push", "--grafana", address))


def test_nothing_that_answers_is_one_line(holdfast: Holdfast) -> None:
    with grafana_server.running(FakeGrafana()) as grafana:
        address = grafana.url
    assert "does not answer" in refusal(holdfast("push", "--grafana", address))


@pytest.mark.parametrize("page", ["<html>Sign in</html>", "[]", '{"database": 1}', "7"])
def test_what_answers_and_is_no_grafana_is_not_called_silent(
    holdfast: Holdfast, monkeypatch: pytest.MonkeyPatch, page: str
) -> None:
    monkeypatch.setattr(FakeGrafana, "answer", lambda *asked: (200, page))
    with grafana_server.running(FakeGrafana()) as login:
        line = refusal(push(holdfast, login))
    assert f"what answers at {login.url} does not answer as Grafana does" in line
    assert "dictionary" not in line


def test_a_wrong_token_is_one_line(
    holdfast: Holdfast, grafana: FakeGrafana, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_GRAFANA_TOKEN", "glsa_wrong")
    line = refusal(push(holdfast, grafana))
    assert "does not know the token (401)" in line
    assert "glsa_wrong" not in line
    assert grafana.changes == []


def test_what_is_wrong_is_told_before_anything_is_changed(
    holdfast: Holdfast, grafana: FakeGrafana
) -> None:
    grafana.version = "9.5.21"
    assert "this Grafana is 9.5.21; the dashboards need 10" in refusal(push(holdfast, grafana))
    grafana.version = "13.2.0"
    assert "no folder with uid 'ml'" in refusal(push(holdfast, grafana, "--folder-uid", "ml"))
    assert "no data source 'Mimir'" in refusal(push(holdfast, grafana, "--data-source", "Mimir"))
    grafana.sources = [{"uid": "loki", "name": "Loki", "type": "loki"}]
    assert "no data source of type Prometheus" in refusal(push(holdfast, grafana))
    assert grafana.changes == []


@pytest.mark.parametrize(
    ("standing", "says"),
    [({"provisioned": True}, "comes from a file"), ({"may_save": False}, "may not change")],
)
def test_a_dashboard_that_can_t_be_changed_keeps_all_others_from_being_pushed(
    holdfast: Holdfast, grafana: FakeGrafana, standing: dict[str, bool], says: str
) -> None:
    model = load("holdfast-self") | {"version": 3, "title": "Older"}
    grafana.boards["holdfast-self"] = {"model": model, "folder": "", **standing}
    assert says in refusal(push(holdfast, grafana))
    assert grafana.changes == []


@pytest.mark.parametrize(
    ("status", "says"),
    [
        (403, "does not let this token save the dashboard"),
        (404, "answers 404 when asked to save the dashboard"),
        (412, "somebody changed it a moment ago"),
        (500, "failed to save the dashboard"),
    ],
)
def test_a_push_that_fails_midway_leaves_nothing_behind(
    holdfast: Holdfast, grafana: FakeGrafana, status: int, says: str
) -> None:
    grafana.failures["POST /api/dashboards/db"] = [0, 0, 0, status]
    line = refusal(push(holdfast, grafana))
    assert says in line
    assert "nothing was changed in the end" in line
    assert grafana.boards == {}
    assert grafana.folders == {}


def test_a_push_that_fails_midway_puts_back_what_was_there(
    holdfast: Holdfast, grafana: FakeGrafana
) -> None:
    grafana.folders["holdfast"] = "Holdfast"
    before = load("holdfast-fleet") | {"version": 4, "title": "As it was", "panels": []}
    grafana.boards["holdfast-fleet"] = {"model": before, "folder": ""}
    grafana.failures["POST /api/dashboards/db"] = [0, 0, 500]
    assert "nothing was changed in the end" in refusal(push(holdfast, grafana))
    assert list(grafana.boards) == ["holdfast-fleet"]
    kept = grafana.boards["holdfast-fleet"]
    assert (kept["model"]["title"], kept["model"]["panels"]) == ("As it was", [])
    assert kept["folder"] == ""


def test_what_could_not_be_put_back_is_named(holdfast: Holdfast, grafana: FakeGrafana) -> None:
    grafana.failures["POST /api/dashboards/db"] = [0, 500]
    grafana.failures["DELETE /api/dashboards/uid/holdfast-fleet"] = [500]
    line = refusal(push(holdfast, grafana))
    assert "not all could be put back: dashboard holdfast-fleet is the new one" in line


def test_another_dashboard_of_the_same_title_is_not_overwritten(
    holdfast: Holdfast, grafana: FakeGrafana
) -> None:
    grafana.folders["holdfast"] = "Holdfast"
    theirs = load("holdfast-run") | {"uid": "abc", "version": 1}
    grafana.boards["abc"] = {"model": theirs, "folder": "holdfast"}
    assert "another dashboard of that title" in refusal(push(holdfast, grafana))
    assert json.dumps(grafana.boards["abc"]["model"]) == json.dumps(theirs)
    assert list(grafana.boards) == ["abc"]
