import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from holdfast_sidecar.cli.find_job import FoundJob
from holdfast_sidecar.cli.main import cli
from holdfast_sidecar.config.paths import Paths
from holdfast_sidecar.export.job_record import JobRecord
from holdfast_sidecar.incidents.explain import tell
from holdfast_sidecar.incidents.storage import IncidentStore
from holdfast_sidecar.records.codec import encode
from holdfast_sidecar.records.plan import Incident
from holdfast_sidecar.startup import SidecarRecord, write_record
from holdfast_sidecar.store.memory_store import MemoryServer, MemoryStore


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
    IncidentStore(Paths(shm=home, state=home / job / "a")).keep(kept)


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


AWAY = ["--redis", "redis://127.0.0.1:1", "--job", "jl"]


def remember(home: Path, **given: object) -> None:
    """What a node's sidecar knew last of a job whose Redis was given with --redis."""
    path = Paths(shm=home, state=home / "jl" / "a").job_record
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(encode(JobRecord(**{**vars(JobRecord("running", 2, 60, 0, "", "")), **given})))


@pytest.mark.parametrize(("command", "shows"), [("explain", "incident x, "), ("incidents", "\nx ")])
def test_the_story_is_told_from_disk_while_redis_does_not_answer(
    home: Path, command: str, shows: str
) -> None:
    leave(home, "jl", "x")
    (home / "jl" / "server.json").unlink()
    told = CliRunner().invoke(cli, [command, *AWAY])
    assert told.exit_code == 0, told.output
    assert shows in told.stdout
    assert told.stderr.startswith("holdfast: Redis at redis://127.0.0.1:1 does not answer: ")
    assert told.stderr.endswith("; this is what is kept here of job 'jl'\n")
    assert told.stderr.count("\n") == 1


def test_without_a_job_the_newest_here_is_told_while_redis_does_not_answer(home: Path) -> None:
    leave(home, "jl", "x")
    (home / "jl" / "server.json").unlink()
    for command in ("explain", "incidents"):
        told = CliRunner().invoke(cli, [command, *AWAY[:2]])
        assert told.exit_code == 0, told.output
        assert "this is what is kept here of job 'jl'" in told.stderr


@pytest.mark.parametrize(("state", "said"), [("running", "no incident so far"), ("done", "ended")])
def test_a_job_without_an_incident_is_not_said_to_be_over_for_want_of_its_redis(
    home: Path, state: str, said: str
) -> None:
    remember(home, state=state)
    told = CliRunner().invoke(cli, ["explain", *AWAY])
    assert told.exit_code == 0, told.output
    assert said in told.stdout
    assert "this is what is kept here of job 'jl'" in told.stderr


@pytest.mark.parametrize("command", ["explain", "incidents", "status"])
def test_where_nothing_is_kept_a_redis_that_does_not_answer_is_bad_input(
    home: Path, command: str
) -> None:
    told = CliRunner().invoke(cli, [command, *AWAY])
    assert told.exit_code == 2
    assert told.output.startswith("holdfast: Redis at redis://127.0.0.1:1 does not answer: ")


@pytest.mark.parametrize(
    ("given", "heading", "exit_code"),
    [
        ({"state": "done"}, "ended: done, attempt 2", 0),
        ({"state": "stopped", "exit_code": 65}, "ended: stopped, attempt 2", 1),
        ({"interrupted_by": "SIGINT"}, "ended: interrupted, attempt 2", 1),
        ({}, "last known: running, attempt 2", 1),
    ],
)
def test_status_tells_what_was_known_last_while_redis_does_not_answer(
    home: Path, given: dict[str, object], heading: str, exit_code: int
) -> None:
    remember(home, **given)
    told = CliRunner().invoke(cli, ["status", *AWAY])
    assert told.exit_code == exit_code, told.output
    assert told.stdout.startswith(f"job jl: {heading}")
    assert told.stderr.count("\n") == 1
    assert "does not answer" in told.stderr
    assert "broke off" not in told.stdout, "nobody knows that"
    as_json = json.loads(CliRunner().invoke(cli, ["status", *AWAY, "--json"]).stdout)
    assert (as_json["step"], as_json["is_healthy"]) == (60, exit_code == 0)


def let_a_sidecar_live(home: Path, redis_url: str) -> None:
    """A node's sidecar runs, and its launcher left word of the server."""
    record = SidecarRecord("jl", "a", 0, "127.0.0.1:9750")
    write_record(Paths(shm=home, state=home / "jl" / "a").sidecar_record, record)
    (home / "jl" / "server.json").write_text(json.dumps({"url": redis_url}))


def test_a_cut_off_job_is_told_from_here_with_the_page_that_goes_on(home: Path) -> None:
    remember(home)
    let_a_sidecar_live(home, "unix:///nowhere/redis.sock")
    for given in ([], ["--job", "jl"]):
        told = CliRunner().invoke(cli, ["status", *given])
        assert told.exit_code == 1, told.output
        assert told.stdout.startswith("job jl: last known: running, attempt 2")
        assert "not known: its Redis does not answer\n" in told.stdout
        assert "page        http://127.0.0.1:9750/ " in told.stdout
        assert "but the sidecar of a is alive: " in told.stderr
        assert told.stderr.count("\n") == 1
    as_json = json.loads(CliRunner().invoke(cli, ["status", "--json"]).stdout)
    assert as_json["pages"] == ["http://127.0.0.1:9750/"]
    assert (as_json["step"], as_json["is_healthy"]) == (60, False)


class EmptyStore(MemoryStore):
    """Of a server that knows no job."""

    def close(self) -> None:
        """There is no connection."""


@pytest.mark.parametrize("answers", [True, False])
@pytest.mark.parametrize("command", ["status", "explain", "report"])
def test_a_job_that_lives_here_is_not_over_for_being_asked_of_another_redis(
    home: Path, monkeypatch: pytest.MonkeyPatch, command: str, answers: bool
) -> None:
    remember(home)
    let_a_sidecar_live(home, "unix:///its/own.sock")
    if answers:
        monkeypatch.setattr(FoundJob, "open_store", lambda found: EmptyStore(MemoryServer()))
    told = CliRunner().invoke(cli, [command, *AWAY])
    assert told.exit_code == (1 if command == "status" else 0), told.output
    assert "over" not in told.output
    assert "broke" not in told.output
    assert "its Redis is unix:///its/own.sock: leave out --redis and HOLDFAST_REDIS" in told.stderr
    if command == "status":
        assert told.stdout.startswith("job jl: last known: running, attempt 2")
        assert "another Redis was asked than its own" in told.stdout


def test_where_a_job_saves_is_known_while_redis_does_not_answer(home: Path) -> None:
    (home / "ck").mkdir()
    remember(home, checkpoint_dir=str(home / "ck"))
    told = CliRunner().invoke(cli, ["checkpoint", "list", *AWAY])
    assert (told.exit_code, told.output) == (0, f"no checkpoint in {home / 'ck'}\n")


def test_the_story_says_since_when_numbers_were_bad() -> None:
    reasons = tell(Incident("x", 0, "crash", evidence=["rank 0: nan"], onset_step=45)).reasons
    assert len(reasons) == 2
    assert "not finite from step 45 on" in reasons[1]
    assert tell(Incident("x", 0, "crash", evidence=["rank 0: nan"])).reasons == ["rank 0: nan"]
