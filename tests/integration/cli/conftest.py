from __future__ import annotations

import dataclasses
import json
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from holdfast_sidecar.cli.main import cli
from holdfast_sidecar.records.codec import encode
from holdfast_sidecar.records.plan import Member, Plan
from holdfast_sidecar.records.reports import AgentReport, NodeReport, RankReport
from holdfast_sidecar.store.connection import open_store
from holdfast_sidecar.store.embedded import EmbeddedServer, start_server
from holdfast_sidecar.store.protocol import Section
from holdfast_sidecar.store.redis_store import RedisStore

JOB = "chargpt"


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedServer]:
    started = start_server(tmp_path_factory.mktemp("server"))
    yield started
    started.stop()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine of its own: no settings file, no other job, state below `home`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in [name for name in os.environ if name.startswith("HOLDFAST_")]:
        monkeypatch.delenv(name)
    return tmp_path / "state" / "holdfast"


@dataclass
class Job:
    """A job whose reports are written by hand; living ones move their heartbeats."""

    store: RedisStore
    home: Path
    server: EmbeddedServer
    agents: list[AgentReport] = field(default_factory=list)
    nodes: list[NodeReport] = field(default_factory=list)
    _stopping: threading.Event = field(default_factory=threading.Event)

    def leave_record(self, job: str = JOB) -> None:
        path = self.home / job / "server.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        record = {"url": self.server.url, "user": "", "password_file": None}
        record["password_file"] = str(self.server.password_file)
        path.write_text(json.dumps(record))

    def add_node(
        self, node: str, node_rank: int, launcher: bool = True, sidecar: bool = True
    ) -> None:
        agent = AgentReport(node, "i", "running", 1, 1, 2, "", 2, 2)
        ranks = [
            RankReport(
                2 * node_rank + local, local, 4700 + local, 41, "backward", 0.012, 0.04, 0.01
            )
            for local in range(2)
        ]
        report = NodeReport(node, "i", 1, 1, 1, 1, True, ranks=ranks, metrics_address="127.0.0.1:1")
        self.store.report(Section.AGENTS, node, encode(agent))
        self.store.report(Section.NODES, node, encode(report))
        self.agents += [agent] * launcher
        self.nodes += [report] * sidecar

    def plan(self, **given: object) -> None:
        members = [Member("a", "i", 0, 0, 2), Member("b", "i", 1, 2, 2)]
        fields = {"attempt": 1, "epoch": 1, "state": "running", "members": members}
        fields |= {"world_size": 4, "restarts": 1}
        self.write(Section.PLAN, "current", Plan(**(fields | given)))  # type: ignore[arg-type]

    def write(self, section: Section, name: str, record: object) -> None:
        self.store.report(section, name, encode(record))

    def lead(self) -> None:
        self.store.campaign("a/i", 30.0, 0)

    def live(self) -> None:
        """Heartbeats of all that are alive, until the test ends."""
        threading.Thread(target=self._beat, daemon=True).start()

    def _beat(self) -> None:
        beat = 1
        while not self._stopping.wait(0.05):
            beat += 1
            for agent in self.agents:
                self.write(Section.AGENTS, agent.node, dataclasses.replace(agent, beat=beat))
            for node in self.nodes:
                self.write(Section.NODES, node.node, dataclasses.replace(node, beat=beat))

    def end(self) -> None:
        self._stopping.set()


@pytest.fixture
def job(server: EmbeddedServer, home: Path) -> Iterator[Job]:
    store = open_store(server.settings, JOB, {})
    for section in Section:
        for name in store.read().section(section):
            store.report(section, name, None)
    store.resign("a/i")
    made = Job(store, home, server)
    yield made
    made.end()
    time.sleep(0.06)
    store.close()


@pytest.fixture
def holdfast(home: Path) -> CliRunner:
    return CliRunner()


@pytest.fixture
def run(holdfast: CliRunner):
    def invoke(*arguments: str) -> Result:
        return holdfast.invoke(cli, arguments, prog_name="holdfast")

    return invoke
