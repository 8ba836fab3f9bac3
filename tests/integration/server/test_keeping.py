"""A server of our own that is kept: killed, it comes back where it was, until it is stopped."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal

import pytest
from tests.servers import required

from holdfast_sidecar.store.connection import check_server, connect, open_store
from holdfast_sidecar.store.embedded import (
    EmbeddedServer,
    KeptServer,
    ServerBinary,
    find_binary,
    start_server,
)
from holdfast_sidecar.store.protocol import Section

PATIENCE_S = 60.0

PARENT = """
import sys, time
from pathlib import Path
from holdfast_sidecar.store.embedded import start_server
from holdfast_sidecar.store.embedded import KeptServer
kept = KeptServer(start_server(Path(sys.argv[1])), lambda line: print(kept.pid, flush=True))
kept.start()
print(kept.pid, flush=True)
time.sleep(600)
"""


@pytest.fixture
def home(short_path: Path) -> Path:
    return short_path / "server"


@contextmanager
def kept(server: EmbeddedServer, told: list[str]) -> Iterator[KeptServer]:
    keeper = KeptServer(server, told.append)
    keeper.start()
    try:
        yield keeper
    finally:
        keeper.stop()


def await_that(is_so: Callable[[], object], what: str) -> None:
    end_s = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < end_s, f"never: {what}"
        time.sleep(0.01)


def outlive_kills(server: EmbeddedServer) -> None:
    """Killed twice, it answers again to those who knew it, with nothing in it."""
    told: list[str] = []
    with kept(server, told) as keeper:
        password = keeper.password_file.read_text()
        store = open_store(keeper.settings, "job", {})
        pids = [keeper.pid]
        for count in (1, 2):
            store.report(Section.NODES, "a", "here")
            os.kill(keeper.pid, signal.SIGKILL)
            await_that(partial(lambda count: len(told) == count, count), "it is said")
            assert store.read().section(Section.NODES) == {}
            pids.append(keeper.pid)
        assert len(set(pids)) == 3
        assert keeper.password_file.read_text() == password
        assert check_server(connect(keeper.settings, {})) == []
        store.close()
    assert all("was ended by SIGKILL and runs again, empty" in line for line in told)
    assert not any("\n" in line for line in told)
    assert not server.directory.exists()


@pytest.mark.parametrize("listen", ["unix", "tcp"])
def test_a_killed_server_comes_back_at_its_address_with_its_password(
    home: Path, tmp_path: Path, listen: Literal["unix", "tcp"]
) -> None:
    of_the_wheel = find_binary(str(tmp_path))
    outlive_kills(start_server(home, listen, of_the_wheel))


@pytest.mark.redis_server
def test_debians_server_comes_back_too(home: Path) -> None:
    binary = ServerBinary(Path(required("redis-server")), (7, 0))
    outlive_kills(start_server(home, binary=binary))


def test_one_that_cannot_be_started_is_tried_until_it_can(home: Path, tmp_path: Path) -> None:
    program = tmp_path / "server"
    program.symlink_to(find_binary().path)
    told: list[str] = []
    with kept(start_server(home, binary=ServerBinary(program, (7, 0))), told) as keeper:
        program.unlink()
        os.kill(keeper.pid, signal.SIGKILL)
        await_that(lambda: told, "it is said")
        assert "can't be started again" in told[0]
        program.symlink_to(find_binary().path)
        await_that(lambda: len(told) > 1, "it is said that it runs again")
        assert check_server(connect(keeper.settings, {})) == []
    assert ["runs again" in line for line in told] == [False, True]


def test_a_server_that_ends_at_once_each_time_is_told_of_once(home: Path, tmp_path: Path) -> None:
    tries = tmp_path / "tries"
    tries.touch()
    program = tmp_path / "server"
    program.write_text(f"#!/bin/sh\necho no memory\necho >> {tries}\nexit 1\n")
    program.chmod(0o755)
    told: list[str] = []
    with kept(replace(start_server(home), binary=program), told) as keeper:
        os.kill(keeper.pid, signal.SIGKILL)
        await_that(lambda: len(tries.read_text()) > 2, "it is tried again and again")
    assert len(told) == 1
    assert "can't be started again (no memory)" in told[0]
    assert not home.exists()


def test_stopping_ends_it_for_good(home: Path) -> None:
    told: list[str] = []
    server = start_server(home)
    with kept(server, told) as keeper:
        os.kill(keeper.pid, signal.SIGKILL)  # stopped at whatever moment of its start
    assert not keeper.is_running()
    assert not home.exists()
    with kept(start_server(home), told) as keeper:
        pass
    assert not keeper.is_running()
    assert not home.exists()
    assert all("runs again" in line for line in told)


def test_one_that_was_started_again_dies_with_its_killed_parent(home: Path) -> None:
    command = [sys.executable, "-c", PARENT, str(home)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        os.kill(int(parent.stdout.readline()), signal.SIGKILL)
        pid = int(parent.stdout.readline())
        watched = os.pidfd_open(pid)
        parent.kill()
        parent.wait()
    gone, _, _ = select.select([watched], [], [], PATIENCE_S)
    if not gone:
        signal.pidfd_send_signal(watched, signal.SIGKILL)
    os.close(watched)
    assert gone, "the server outlived its parent"
