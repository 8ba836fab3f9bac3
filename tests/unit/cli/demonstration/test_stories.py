"""The demonstration lets `holdfast explain` tell of its faults, and says so when it can't."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast_sidecar.cli.demo import page
from holdfast_sidecar.cli.demonstration import job
from holdfast_sidecar.cli.demonstration.job import Workspace, write_settings
from holdfast_sidecar.cli.demonstration.verdict import (
    DemoVerdict,
    FaultResult,
    IncidentText,
    read_stories,
)
from holdfast_sidecar.config.paths import Paths
from holdfast_sidecar.incidents.storage import IncidentStore
from holdfast_sidecar.records.codec import encode
from holdfast_sidecar.records.plan import Incident


def row(incident: str) -> FaultResult:
    return FaultResult("kill a rank", "rank 3 on b", 60, 0.1, "-", 1.0, 0, incident=incident)


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    monkeypatch.setattr(job, "environment", lambda: {"HOME": str(tmp_path)})
    made = Workspace(tmp_path, tmp_path)
    write_settings(made, 100)
    kept = encode(Incident("3f2a", 1, "crash", "b", [3], 0.95, detected_unix_s=5.0))
    IncidentStore(Paths(tmp_path, tmp_path / "state" / "demo" / "b")).keep({"3f2a": kept})
    return made


def test_each_fault_that_was_noticed_is_told_after_the_job_is_gone(workspace: Workspace) -> None:
    (told,) = read_stories(workspace, "demo", [row(""), row("3f2a")])
    assert told.problem == ""
    assert told.text.startswith("Rank 3 on node b crashed (95% sure);")
    verdict = DemoVerdict((), "ab", "ab", 1.0, stories=(told,))
    assert "$ holdfast explain 3f2a\n\nRank 3 on node b crashed" in page(verdict)
    assert "--keep DIR keeps them" in page(verdict)
    assert "--keep" not in page(verdict, keeps=True)
    assert json.loads(json.dumps(verdict.as_json()))["stories"][0]["incident"] == "3f2a"


def test_a_server_that_is_gone_with_its_password_is_no_obstacle(workspace: Workspace) -> None:
    gone = {"url": "unix:///x/redis.sock", "user": "", "password_file": "/nowhere/password"}
    (workspace.root / "state" / "demo" / "server.json").write_text(json.dumps(gone))
    (told,) = read_stories(workspace, "demo", [row("3f2a")])
    assert told.problem == ""
    assert told.text.startswith("Rank 3 on node b crashed")


def test_an_incident_that_nobody_kept_fails_the_demonstration(workspace: Workspace) -> None:
    (untold,) = read_stories(workspace, "demo", [row("zz")])
    assert untold == IncidentText("zz", "", untold.problem)
    assert "no incident begins with 'zz'" in untold.problem
    verdict = DemoVerdict((), "ab", "ab", 1.0, stories=(untold,))
    assert verdict.all_problems == (f"incident zz: {untold.problem}",)
    assert f"failed: incident zz: {untold.problem}" in page(verdict)
