"""Fixtures for all tests. `tests.servers` holds what they are made of."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent))  # so that tests can import tests.servers

from tests import servers


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A temporary directory whose path leaves room for a Unix socket (107 bytes)."""
    path = Path(tempfile.mkdtemp(prefix="hf-", dir="/tmp"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def server(short_path: Path) -> Iterator[servers.Server]:
    """A running server on a Unix socket."""
    started = servers.plain_on_socket(short_path).start()
    yield started
    started.kill()


@pytest.fixture
def tcp_server(short_path: Path) -> Iterator[servers.Server]:
    """A running server on a loopback port."""
    started = servers.plain_on_port(short_path).start()
    yield started
    started.kill()


@pytest.fixture
def tls_server(short_path: Path) -> Iterator[servers.Server]:
    """A running server that speaks TLS only (mark the test redis_server)."""
    started = servers.with_tls(short_path).start()
    yield started
    started.kill()


@pytest.fixture
def sentinels(short_path: Path) -> Iterator[servers.Sentinels]:
    """Master, replica and three sentinels, running (mark the test redis_server)."""
    started = servers.behind_sentinels(short_path)
    yield started
    started.stop()
