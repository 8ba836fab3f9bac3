import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from holdfast_sidecar.chronicle import Chronicle
from holdfast_sidecar.cli.main import cli
from holdfast_sidecar.places import Places
from holdfast_sidecar.records.codec import encode
from holdfast_sidecar.records.incident import Incident
from holdfast_sidecar.story import tell


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOLDFAST_SET_PATHS_STATE_DIR", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path


def leave(home: Path, job: str, *identifiers: str) -> None:
    """A job whose server is away, and what was kept of its incidents."""
    (home / job).mkdir()
    (home / job / "server.json").write_text(json.dumps({"url": "unix:///nowhere/redis.sock"}))
    kept = {
        name: encode(Incident(name, 0, "crash", detected_unix_s=float(when)))
        for when, name in enumerate(identifiers, 1)
    }
    Chronicle(Places(shm=home, state=home / job / "a")).keep(kept)


def test_the_incidents_of_several_jobs_are_listed_together(home: Path) -> None:
    leave(home, "one", "x")
    leave(home, "two", "y", "z")
    leave(home, "empty")
    listed = CliRunner().invoke(cli, ["incidents"])
    assert listed.exit_code == 0, listed.output
    rows = [line.split()[:2] for line in listed.stdout.splitlines()]
    assert rows == [["job", "incident"], ["one", "x"], ["two", "y"], ["two", "z"]]
    told = json.loads(CliRunner().invoke(cli, ["incidents", "--json"]).stdout)
    assert [(story["job"], story["identifier"]) for story in told] == [
        ("one", "x"),
        ("two", "y"),
        ("two", "z"),
    ]


def test_the_list_of_one_job_does_not_repeat_its_name(home: Path) -> None:
    leave(home, "one", "x")
    leave(home, "two", "y")
    listed = CliRunner().invoke(cli, ["incidents", "--job", "two"])
    assert [line.split()[0] for line in listed.stdout.splitlines()] == ["incident", "y"]


def test_the_story_says_since_when_numbers_were_bad() -> None:
    reasons = tell(Incident("x", 0, "crash", evidence=["rank 0: nan"], onset_step=45)).reasons
    assert len(reasons) == 2
    assert "not finite from step 45 on" in reasons[1]
    assert tell(Incident("x", 0, "crash", evidence=["rank 0: nan"])).reasons == ["rank 0: nan"]
