"""The callback for Lightning's Trainer, in one process and with a model of one layer."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("lightning")

import lightning.pytorch as lightning
import torch
from tests.integration.adapters.watched import Watched

from holdfast.adapters import lightning as adapter
from holdfast.loading import LoadFailed
from holdfast.page import OrderKind

pytestmark = pytest.mark.torch


class Network(lightning.LightningModule):
    def __init__(self, width: int = 2) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, width)

    def training_step(self, batch: torch.Tensor, index: int) -> torch.Tensor:
        return self.layer(batch).square().mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.0)


@pytest.fixture
def callback(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> adapter.HoldfastCallback:
    monkeypatch.setattr(adapter, "recording", lambda: watched.recorder)
    return adapter.HoldfastCallback()


def fit(callback: adapter.HoldfastCallback, folder: Path, **options: object) -> lightning.Trainer:
    given = {"max_epochs": 3, "logger": False, "enable_checkpointing": False}
    quiet = {"enable_progress_bar": False, "enable_model_summary": False}
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=1,
        default_root_dir=folder,
        callbacks=[callback],
        **{**given, **quiet, **options},
    )
    trainer.fit(Network(), torch.utils.data.DataLoader(torch.ones(8, 4), 2))
    return trainer


def test_an_ordered_step_is_saved_by_the_trainer(
    callback: adapter.HoldfastCallback, watched: Watched, tmp_path: Path
) -> None:
    watched.order(OrderKind.CHECKPOINT, 5)
    trainer = fit(callback, tmp_path)
    assert watched.reply == "SAVED"
    saved = torch.load(watched.saved(5) / "lightning.ckpt", weights_only=True)
    assert saved["global_step"] == 5
    assert trainer.global_step == 12


def test_batches_whose_gradients_are_gathered_are_one_step(
    callback: adapter.HoldfastCallback, watched: Watched, tmp_path: Path
) -> None:
    watched.order(OrderKind.CHECKPOINT, 3)
    trainer = fit(callback, tmp_path, accumulate_grad_batches=2)
    assert watched.reply == "SAVED"
    assert torch.load(watched.saved(3) / "lightning.ckpt", weights_only=True)["global_step"] == 3
    assert callback._job.step == trainer.global_step == 6


def test_a_stop_ends_the_training_although_it_should_last_longer(
    callback: adapter.HoldfastCallback, watched: Watched, tmp_path: Path
) -> None:
    watched.order(OrderKind.STOP, 2)
    assert fit(callback, tmp_path, min_epochs=2, min_steps=9).global_step == 2


def test_whoever_could_not_write_still_comes_to_where_all_meet(
    callback: adapter.HoldfastCallback,
    watched: Watched,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    met: list[str] = []

    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    strategy = lightning.strategies.SingleDeviceStrategy
    monkeypatch.setattr(strategy, "save_checkpoint", fail)
    monkeypatch.setattr(strategy, "barrier", lambda self, name=None: met.append(str(name)))
    watched.order(OrderKind.CHECKPOINT, 2)
    trainer = fit(callback, tmp_path)
    assert watched.reply == "FAILED"
    assert met.count("Trainer.save_checkpoint") == 1
    assert trainer.global_step == 12


def test_a_checkpoint_of_another_model_is_refused_by_its_shapes(
    callback: adapter.HoldfastCallback, watched: Watched, tmp_path: Path
) -> None:
    watched.order(OrderKind.CHECKPOINT, 2)
    fit(callback, tmp_path)
    callback._model = Network(width=3)
    with pytest.raises(LoadFailed, match=r"layer\.weight is \[3, 4\] here and \[2, 4\] in the"):
        callback._load(str(watched.saved(2)), 2)
    with pytest.raises(LoadFailed, match="not saved by Lightning"):
        callback._load(str(tmp_path), 2)
