"""Gives adapters a page to write to, in a process that is no rank."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.integration.adapters.watched import Watched


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Watched:
    """The page of whatever adapter is made next."""
    for name in ("HOLDFAST_RESUME", "WORLD_SIZE", "RANK", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    root = tmp_path / "checkpoints"
    monkeypatch.setenv("HOLDFAST_CHECKPOINT_DIR", str(root))
    return Watched(root)
