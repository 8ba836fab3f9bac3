"""The Trainer of Transformers: a rank is killed, and its last weights are those of a quiet run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.end_to_end.adapters.conftest import RANKS, Trained

pytest.importorskip("transformers")
pytestmark = pytest.mark.torch


def test_the_trainer_goes_on_to_the_same_weights_after_a_kill(
    train: Callable[..., Trained],
) -> None:
    trained = train("train_transformers.py")
    assert trained.exit_code == 0, trained.log
    assert (1, 0) in trained.said, trained.log
    for rank in range(RANKS):
        said = trained.said[1, rank]
        assert "checkpoint-" in Path(said["resumed"]).name
        assert said["steps"] == 60
        assert said["weights"] == said["undisturbed"]
