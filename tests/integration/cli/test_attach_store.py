"""Where the nodes of an attached job agree."""

from __future__ import annotations

import json
import time
from pathlib import Path

import psutil
import pytest

from holdfast_sidecar.cli import attach_watch
from holdfast_sidecar.cli.attach_watch import open_attached_store
from holdfast_sidecar.config.paths import Paths, places
from holdfast_sidecar.config.settings import BadInput, PathSettings, RedisSettings
from holdfast_sidecar.store.memory_store import MemoryStore
from holdfast_sidecar.store.protocol import Section


@pytest.fixture
def where(home: Path) -> Paths:
    made = places(PathSettings(), "j", "a")
    made.state.mkdir(parents=True)
    return made


def test_the_first_node_starts_a_server_and_the_next_on_this_machine_finds_it(
    where: Paths,
) -> None:
    first = open_attached_store(RedisSettings(), "j", where)
    try:
        record = json.loads(where.server_record.read_text())
        assert where.server_record.stat().st_mode & 0o077 == 0
        assert "password" not in record
        second = open_attached_store(RedisSettings(), "j", places(PathSettings(), "j", "b"))
        assert second.undo == []
        first.store.report(Section.NODES, "a", "here")
        assert second.store.read().section(Section.NODES) == {"a": "here"}
    finally:
        first.close()
    assert not where.server_record.exists()
    assert not where.server.exists()


def test_a_server_of_its_own_that_was_killed_comes_back(
    where: Paths, capfd: pytest.CaptureFixture[str]
) -> None:
    before = psutil.Process().children()
    first = open_attached_store(RedisSettings(), "j", where)
    told = ""
    try:
        (started,) = set(psutil.Process().children()) - set(before)
        started.kill()
        for _ in range(1000):
            if told := capfd.readouterr().err:
                break
            time.sleep(0.02)
        first.store.report(Section.NODES, "a", "here")
    finally:
        first.close()
    assert "was ended by SIGKILL and runs again" in told
    assert not where.server.exists()


def test_a_server_that_is_given_is_left_alone(where: Paths, server: object) -> None:
    given = open_attached_store(server.settings, "j", where)  # type: ignore[attr-defined]
    assert given.undo == []
    given.close()
    assert not where.server_record.exists()


def test_without_any_server_one_node_agrees_with_itself(
    where: Paths, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(_: Path) -> None:
        raise BadInput("no server is installed")

    monkeypatch.setattr(attach_watch, "start_server", refuse)
    alone = open_attached_store(RedisSettings(), "j", where)
    assert isinstance(alone.store, MemoryStore)
    told = capsys.readouterr().err
    assert told == "holdfast: no server is installed; `holdfast status` can't see this job\n"
