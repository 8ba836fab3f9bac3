"""What the tests here share: servers in short directories, and jobs that end with them."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests import servers
from tests.servers import Server

pytest.importorskip("torch")


@pytest.fixture(scope="module")
def room() -> Iterator[ExitStack]:
    """What is entered or called back there ends after the module's last test."""
    with ExitStack() as everything:
        yield everything


@pytest.fixture(scope="module")
def new_server(room: ExitStack) -> Callable[[], Server]:
    """Starts a server of its own on a Unix socket each time."""

    def start() -> Server:
        folder = Path(tempfile.mkdtemp(prefix="hf-", dir="/tmp"))
        room.callback(shutil.rmtree, folder, ignore_errors=True)
        started = servers.plain_on_socket(folder).start()
        room.callback(started.kill)
        return started

    return start
