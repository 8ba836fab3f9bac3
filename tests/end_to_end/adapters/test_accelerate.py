"""A loop with Accelerate: a rank is killed, and its last weights are those of a quiet run."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.end_to_end.adapters.conftest import RANKS, Trained

pytest.importorskip("accelerate")
pytestmark = pytest.mark.torch


def test_accelerate_goes_on_to_the_same_weights_after_a_kill(train: Callable[..., Trained]) -> None:
    trained = train("train_accelerate.py")
    assert trained.exit_code == 0, trained.log
    assert (1, 0) in trained.said, trained.log
    for rank in range(RANKS):
        said = trained.said[1, rank]
        assert said["resumed"] > 0
        assert said["batches"] == said["all_batches"][said["resumed"] :]
        assert said["weights"] == said["undisturbed"]
