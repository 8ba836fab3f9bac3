from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.peers.two_nodes import TwoNodes

from holdfast_sidecar.config.settings import SnapshotSettings

Making = Callable[..., TwoNodes]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Making]:
    """Nodes on this machine, ended with the test."""
    made: list[TwoNodes] = []

    def nodes(
        ranks: dict[str, tuple[int, ...]], settings: SnapshotSettings | None = None, **more: Any
    ) -> TwoNodes:
        made.append(TwoNodes(tmp_path, settings or SnapshotSettings(), ranks, **more))
        return made[-1]

    before = set(os.listdir("/proc/self/fd"))
    yield nodes
    for each in made:
        each.close()
    assert len(set(os.listdir("/proc/self/fd")) - before) < 20
