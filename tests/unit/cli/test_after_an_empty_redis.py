"""What a run's failures are told from once Redis came back empty: what is kept here."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from holdfast_sidecar.cli.find_job import FoundJob
from holdfast_sidecar.cli.main import cli
from holdfast_sidecar.config.paths import Paths
from holdfast_sidecar.incidents.storage import IncidentStore
from holdfast_sidecar.records.codec import encode
from holdfast_sidecar.records.plan import Incident, Plan
from holdfast_sidecar.store.memory_store import MemoryServer, MemoryStore
from holdfast_sidecar.store.protocol import CURRENT, Section


def kept(now: float) -> list[Incident]:
    """What this machine kept: of the run before, and of this one."""
    return [
        Incident("before", 0, "crash", "a", [0], detected_unix_s=now - 2000, decided="restart"),
        Incident("forgotten", 0, "crash", "a", [1], detected_unix_s=now - 500, decided="restart"),
    ]


def account(began_unix_s: float, now: float) -> dict[str, str]:
    """Of a thousand seconds."""
    return {
        "began": f"{round(began_unix_s * 1e6)}",
        "at": f"{round(now * 1e6)}",
        "open": "productive",
        "run": f"{began_unix_s}",
        "s:productive": "990000000",
        "s:restart": "10000000",
    }


class EmptiedStore(MemoryStore):
    """The plan and the account were told anew; incidents that are over nobody tells again."""

    def __init__(self, now: float) -> None:
        super().__init__(MemoryServer())
        plan = Plan(1, 1, "running", world_size=2, restarts=1, began_unix_s=now - 1000)
        self.report(Section.PLAN, CURRENT, encode(plan))
        for name, text in account(plan.began_unix_s, now).items():
            self.report(Section.ACCOUNT, name, text)

    def close(self) -> None:
        """There is no connection."""


@pytest.fixture(autouse=True)
def ground(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOLDFAST_SET_PATHS_STATE_DIR", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setattr(FoundJob, "open_store", lambda found: EmptiedStore(now))
    places = Paths(shm=tmp_path, state=tmp_path / "jl" / "a")
    IncidentStore(places).keep({one.identifier: encode(one) for one in kept(now)})


def told(*command: str) -> str:
    answer = CliRunner().invoke(cli, [*command, "--redis", "redis://emptied", "--job", "jl"])
    assert answer.exit_code == 0, answer.output
    return answer.stdout


def test_report_counts_the_failure_and_lists_it() -> None:
    account = json.loads(told("report", "--json"))["account"]
    assert [one["identifier"] for one in account["incidents"]] == ["forgotten"]
    assert account["reliability"]["failures"] == 1
    assert "failures       1, one in 16 min" in told("report")


def test_checkpoint_plan_counts_it_too() -> None:
    assert "failures in 1" in told("checkpoint", "plan")
