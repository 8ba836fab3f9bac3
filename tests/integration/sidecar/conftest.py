"""A node to watch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.sidecar.node import Node
from tests.servers import Server


@pytest.fixture
def node(tmp_path: Path, server: Server) -> Iterator[Node]:
    made = Node(tmp_path, server)
    yield made
    made.close()
