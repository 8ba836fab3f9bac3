"""One nursery for all tests here."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.integration.checkpoints.ranks import Ranks


@pytest.fixture(scope="session")
def run_ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    """Starts ranks of the training program."""
    ranks = Ranks(tmp_path_factory.mktemp("ranks"))
    yield ranks
    ranks.close()
