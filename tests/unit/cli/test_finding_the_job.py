from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from holdfast_sidecar.bad_input import BadInput
from holdfast_sidecar.cli import finding_the_job
from holdfast_sidecar.cli.finding_the_job import NoSuchJob, find_job
from holdfast_sidecar.configuration import Effective
from holdfast_sidecar.settings import PathSettings, RedisSettings, Settings


class Client(redis.Redis):
    """A client of a server that knows these keys."""

    keys_there: tuple[str, ...] = ()
    closed = 0

    def ping(self, **given: object) -> bool:
        return True

    def scan_iter(self, *given: object, **named: object) -> Iterator[str]:
        return iter(self.keys_there)

    def close(self) -> None:
        self.closed += 1
        super().close()


@pytest.fixture
def clients(monkeypatch: pytest.MonkeyPatch) -> list[Client]:
    made: list[Client] = []

    def connect(*given: object) -> Client:
        made.append(Client())
        return made[-1]

    monkeypatch.setattr(finding_the_job, "connect", connect)
    return made


def test_a_server_that_is_only_asked_for_its_jobs_is_let_go_of(
    clients: list[Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    effective = Effective(Settings(redis=RedisSettings(url="redis://there")), {})
    with pytest.raises(NoSuchJob):
        find_job(effective, None)
    monkeypatch.setattr(Client, "keys_there", ("holdfast:{llm}:agents",))
    assert find_job(effective, None).job == "llm"
    assert [client.closed for client in clients] == [1, 1]


def test_servers_that_are_only_asked_whether_they_live_are_let_go_of(
    clients: list[Client], tmp_path: Path
) -> None:
    for job in ("one", "two"):
        (tmp_path / job).mkdir()
        (tmp_path / job / "server.json").write_text('{"url": "redis://there"}')
    settings = Settings(paths=PathSettings(state_dir=str(tmp_path)))
    with pytest.raises(BadInput, match="several jobs are here"):
        find_job(Effective(settings, {}), None)
    assert [client.closed for client in clients] == [1, 1]
