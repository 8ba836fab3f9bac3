from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from click.testing import CliRunner

from holdfast_sidecar.cli import find_job as finding_the_job
from holdfast_sidecar.cli.find_job import NoSuchJob, find_job
from holdfast_sidecar.cli.main import cli
from holdfast_sidecar.config.loading import Effective
from holdfast_sidecar.config.settings import BadInput, PathSettings, RedisSettings, Settings

STRANGER = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="makes files of another user: needs root")


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


@needs_root
def test_another_users_word_of_a_server_is_not_believed(tmp_path: Path) -> None:
    """In the temporary directory anybody may make our directory; its server would be sent the
    password from the environment."""
    record = tmp_path / "state" / "llama" / "server.json"
    record.parent.mkdir(parents=True, mode=0o700)
    record.write_text('{"url": "redis://attacker"}')
    given = RedisSettings()
    assert set(finding_the_job.read_records(tmp_path / "state", given)) == {"llama"}
    os.chown(record, STRANGER, STRANGER)
    assert finding_the_job.read_records(tmp_path / "state", given) == {}
    os.chown(record, 0, 0)
    os.chown(record.parent, STRANGER, STRANGER)
    assert finding_the_job.read_records(tmp_path / "state", given) == {}


def test_a_word_that_others_may_write_is_not_believed(tmp_path: Path) -> None:
    record = tmp_path / "llama" / "server.json"
    record.parent.mkdir(mode=0o700)
    record.write_text('{"url": "redis://attacker"}')
    record.parent.chmod(0o775)
    assert finding_the_job.read_records(tmp_path, RedisSettings()) == {}
    record.parent.chmod(0o700)
    record.chmod(0o666)
    assert finding_the_job.read_records(tmp_path, RedisSettings()) == {}


@needs_root
@pytest.mark.parametrize("command", ["status", "explain", "stop", "doctor", "checkpoint list"])
def test_commands_refuse_a_temporary_state_directory_of_another_user(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = tmp_path / f"holdfast-{os.getuid()}"
    (planted / "llama").mkdir(parents=True)
    (planted / "llama" / "server.json").write_text('{"url": "redis://127.0.0.1:1"}')
    os.chown(planted, STRANGER, STRANGER)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("holdfast_sidecar.config.paths.may_be_made", lambda path: False)
    found = CliRunner().invoke(cli, command.split())
    assert found.exit_code == 2
    assert "is not a directory of yours: remove it" in found.output
