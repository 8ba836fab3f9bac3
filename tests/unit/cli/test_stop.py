from pathlib import Path

import pytest
from click.testing import CliRunner

from holdfast_sidecar.cli import job as stop
from holdfast_sidecar.cli.find_job import FoundJob
from holdfast_sidecar.cli.main import cli
from holdfast_sidecar.config.settings import RedisSettings
from holdfast_sidecar.policy.cluster import Cluster
from holdfast_sidecar.records.codec import encode
from holdfast_sidecar.records.plan import Member, Plan, Request
from holdfast_sidecar.records.reports import AgentReport
from holdfast_sidecar.store.memory_store import MemoryServer, MemoryStore
from holdfast_sidecar.store.protocol import Lease, Section, StoreUnavailable, View

REQUEST = Request("r", "stop", "me@here")
MEMBERS = [Member("a", "i", 0, 0, 2)]


def cluster(plan: Plan | None, *agents: AgentReport, is_asked: bool = False) -> Cluster:
    requests = {"r": REQUEST} if is_asked else {}
    return Cluster({agent.node: agent for agent in agents}, plan=plan, requests=requests)


def launcher(beat: int, state: str = "running", incarnation: str = "i") -> AgentReport:
    return AgentReport("a", incarnation, state, 0, beat, 2, "", 1, 1)


def test_the_job_has_ended_once_its_launchers_have_left() -> None:
    stopped = cluster(Plan(0, 1, "stopped", message="asked for by me@here"))
    how = "asked for by me@here"
    waits = stop.look_at_stop(stopped, "a/i", ["a", "b"])
    assert waits == stop.StopProgress("waiting for the launchers of a, b to leave", how=how)
    assert stop.look_at_stop(stopped, "a/i", []) == stop.StopProgress(
        "ended", has_ended=True, how=how
    )


def test_a_run_that_waits_to_begin_has_not_ended_with_the_one_before() -> None:
    waiting = cluster(Plan(0, 1, "done"), is_asked=True)
    assert stop.look_at_stop(waiting, "a/i", ["a"]).what == "stopping"
    assert "nobody leads yet" in stop.look_at_stop(waiting, "", ["a"]).what


def test_a_launcher_stays_until_it_says_that_it_left_or_falls_silent() -> None:
    leaving = stop.Leaving(cluster(None, launcher(1)), silence_s=1.5)
    assert leaving.nodes(cluster(None, launcher(1)), "s", 10.0) == ["a"]
    assert leaving.nodes(cluster(None, launcher(2)), "s", 11.4) == ["a"]
    assert leaving.nodes(cluster(None, launcher(2)), "s", 12.0) == ["a"]
    assert leaving.nodes(cluster(None, launcher(2)), "s", 12.9) == []
    assert leaving.nodes(cluster(None, launcher(3, "left")), "s", 13.0) == []


def test_a_launcher_that_comes_later_is_not_waited_for() -> None:
    leaving = stop.Leaving(cluster(None, launcher(1)), silence_s=1.5)
    assert leaving.nodes(cluster(None, launcher(1, incarnation="next")), "s", 10.0) == []


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
    monkeypatch.chdir(tmp_path)
    server = MemoryServer()
    found = FoundJob("j", RedisSettings(), tmp_path, tmp_path, from_record=True)
    monkeypatch.setattr(stop, "find_job", lambda effective, job: found)
    monkeypatch.setattr(FoundJob, "open_store", lambda self: MemoryStore(server))
    monkeypatch.setattr(MemoryStore, "close", lambda self: None, raising=False)
    return MemoryStore(server)


def test_saving_a_job_that_has_ended_says_that_nothing_was_saved(store: MemoryStore) -> None:
    store.report(Section.PLAN, "current", encode(Plan(0, 1, "done", MEMBERS)))
    result = CliRunner().invoke(cli, ["stop", "--save"])
    assert result.exit_code == 1
    assert "nothing was saved: job j had ended before: done" in result.output
    result = CliRunner().invoke(cli, ["stop"])
    assert (result.exit_code, result.output) == (0, "job j has ended: done\n")
    assert store.read().section(Section.REQUESTS) == {}


def test_a_run_that_waits_to_begin_is_asked_to_stop(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.report(Section.PLAN, "current", encode(Plan(0, 1, "done")))
    store.report(Section.AGENTS, "a", encode(launcher(1, "joining")))
    before = store.read()
    store.report(Section.AGENTS, "a", encode(launcher(2, "joining")))
    monkeypatch.setattr(stop, "look_twice", lambda store, patience_s: (before, store.read()))
    result = CliRunner().invoke(cli, ["stop", "--job=j", "--timeout", "0"])
    assert "nobody leads yet" in result.output
    assert result.exit_code == 1
    assert len(store.read().section(Section.REQUESTS)) == 1
    result = CliRunner().invoke(cli, ["stop", "--job=j", "--save"])
    assert "was not stopped, as there is no checkpoint: its next run has not begun" in result.output
    assert (result.exit_code, len(store.read().section(Section.REQUESTS))) == (1, 1)


class Going:
    """A job's own server: it answers with a plan that is over, then goes with the last launcher."""

    def __init__(self, found: FoundJob, view: View) -> None:
        self._found, self._views = found, [view]

    def read(self) -> View:
        if self._views:
            return self._views.pop()
        raise StoreUnavailable("gone")

    def wait(self, timeout_s: float) -> None:
        if not self._views:
            (self._found.state / "server.json").unlink(missing_ok=True)


def test_how_a_job_ended_is_said_though_its_own_server_went_with_it(tmp_path: Path) -> None:
    (tmp_path / "server.json").touch()
    found = FoundJob("j", RedisSettings(), tmp_path, tmp_path, from_record=True)
    sections = {
        Section.PLAN: {"current": encode(Plan(0, 1, "stopped", message="asked for by me@here"))},
        Section.AGENTS: {"a": encode(launcher(1))},
    }
    view = View(Lease(1, "a/i"), "s", sections)
    leaving = stop.Leaving(cluster(None, launcher(1)), silence_s=1.5)
    said: list[str] = []
    ended = stop.watch(Going(found, view), found, leaving, 9.0, said.append)  # type: ignore[arg-type]
    assert ended == "job j has ended: asked for by me@here"
    assert said == ["waiting for the launchers of a to leave …"]
