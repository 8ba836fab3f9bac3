"""The callback for Lightning's Trainer, in one process and with a model of one layer."""

from __future__ import annotations

import argparse
import enum
import re
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("lightning")

import lightning.pytorch as lightning
import torch
from lightning.fabric.plugins import TorchCheckpointIO
from lightning.pytorch.plugins.io import AsyncCheckpointIO
from tests.integration.adapters.watched import Watched

from holdfast.adapters import lightning as adapter
from holdfast.contract import page
from holdfast.contract.page import OrderKind
from holdfast.state.loading import LoadFailed

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
def callback(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> adapter.LightningCallback:
    monkeypatch.setattr(adapter, "recording", lambda: watched.recorder)
    return adapter.LightningCallback()


def fit(
    callback: adapter.LightningCallback,
    folder: Path,
    model: lightning.LightningModule | None = None,
    **options: object,
) -> lightning.Trainer:
    given = {"max_epochs": 3, "logger": False, "enable_checkpointing": False}
    quiet = {"enable_progress_bar": False, "enable_model_summary": False}
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=1,
        default_root_dir=folder,
        callbacks=[callback],
        **{**given, **quiet, **options},
    )
    trainer.fit(model or Network(), torch.utils.data.DataLoader(torch.ones(8, 4), 2))
    return trainer


def test_an_ordered_step_is_saved_by_the_trainer(
    callback: adapter.LightningCallback, watched: Watched, tmp_path: Path
) -> None:
    watched.order(OrderKind.CHECKPOINT, 5)
    trainer = fit(callback, tmp_path)
    assert watched.reply == "SAVED"
    saved = torch.load(watched.saved(5) / "lightning.ckpt", weights_only=True)
    assert saved["global_step"] == 5
    assert trainer.global_step == 12


def test_batches_whose_gradients_are_gathered_are_one_step(
    callback: adapter.LightningCallback, watched: Watched, tmp_path: Path
) -> None:
    watched.order(OrderKind.CHECKPOINT, 3)
    trainer = fit(callback, tmp_path, accumulate_grad_batches=2)
    assert watched.reply == "SAVED"
    assert torch.load(watched.saved(3) / "lightning.ckpt", weights_only=True)["global_step"] == 3
    assert callback._job.step == trainer.global_step == 6


def test_a_stop_ends_the_training_although_it_should_last_longer(
    callback: adapter.LightningCallback, watched: Watched, tmp_path: Path
) -> None:
    watched.order(OrderKind.STOP, 2)
    assert fit(callback, tmp_path, min_epochs=2, min_steps=9).global_step == 2


def test_whoever_could_not_write_still_comes_to_where_all_meet(
    callback: adapter.LightningCallback,
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


def test_what_a_thread_would_write_is_there_when_it_is_read_back(
    callback: adapter.LightningCallback,
    watched: Watched,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write = TorchCheckpointIO.save_checkpoint

    def write_slowly(*given: Any, **named: Any) -> None:
        time.sleep(0.2)
        write(*given, **named)

    monkeypatch.setattr(TorchCheckpointIO, "save_checkpoint", write_slowly)
    watched.order(OrderKind.CHECKPOINT, 2)
    trainer = fit(callback, tmp_path, plugins=[AsyncCheckpointIO()])
    assert watched.reply == "SAVED"
    saved = torch.load(watched.saved(2) / "lightning.ckpt", weights_only=True)
    assert saved["global_step"] == 2
    assert isinstance(trainer.strategy.checkpoint_io, AsyncCheckpointIO)


def write_folder(self: object, path: str | Path, weights_only: bool = False, **_: object) -> None:
    """As DeepSpeed's own engine does: Lightning writes nothing beside it."""
    Path(path).mkdir(parents=True)
    Path(path, "latest").write_text("checkpoint")


def test_a_folder_that_lightning_did_not_write_is_saved_and_not_read_back(
    callback: adapter.LightningCallback,
    watched: Watched,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lightning.Trainer, "save_checkpoint", write_folder)
    watched.order(OrderKind.CHECKPOINT, 2)
    fit(callback, tmp_path)
    assert watched.reply == "SAVED"
    assert (watched.saved(2) / "lightning.ckpt" / "latest").exists()


def test_a_file_that_is_not_there_when_it_was_saved_is_no_checkpoint(
    callback: adapter.LightningCallback,
    watched: Watched,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(lightning.Trainer, "save_checkpoint", lambda *_, **__: None)
    watched.order(OrderKind.CHECKPOINT, 2)
    fit(callback, tmp_path)
    assert watched.reply == "FAILED"
    assert "had not written lightning.ckpt" in caplog.text


def test_a_checkpoint_of_another_model_is_refused_by_its_shapes(
    callback: adapter.LightningCallback, watched: Watched, tmp_path: Path
) -> None:
    watched.order(OrderKind.CHECKPOINT, 2)
    fit(callback, tmp_path)
    callback._model = Network(width=3)
    with pytest.raises(LoadFailed, match=r"layer\.weight is \[3, 4\] here and \[2, 4\] in the"):
        callback._load(str(watched.saved(2)), 2)
    with pytest.raises(LoadFailed, match="not saved by Lightning"):
        callback._load(str(tmp_path), 2)


class Colour(enum.Enum):
    RED = 1


class Configured(Network):
    def __init__(self, given: object) -> None:
        super().__init__()
        self.save_hyperparameters()


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (Path("/data"), "a pathlib"),
        (argparse.Namespace(lr=0.1), "a argparse.Namespace"),
        (Colour.RED, r"a tests\..*Colour"),
    ],
    ids=["path", "namespace", "enum"],
)
def test_hyperparameters_that_no_resume_reads_are_told_at_the_first_step_and_not_saved(
    callback: adapter.LightningCallback,
    watched: Watched,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    given: object,
    named: str,
) -> None:
    watched.order(OrderKind.CHECKPOINT, 5)
    trainer = fit(callback, tmp_path, Configured(given))
    (told,) = page.parse_unrestorable(bytes(watched.memory))
    assert re.match(rf"save_hyperparameters\(\) of Configured holds {named}", told)
    assert "give weights_only=False to both LightningCallback and fit" in told
    assert caplog.text.count("this job could not be resumed") == 1
    assert "what Lightning wrote holds" in caplog.text
    assert watched.reply == "FAILED"
    assert trainer.global_step == 12


def test_whoever_lets_fit_read_anything_gets_his_checkpoint_back(
    watched: Watched, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapter, "recording", lambda: watched.recorder)
    watched.order(OrderKind.CHECKPOINT, 5)
    callback = adapter.LightningCallback(weights_only=False)
    trainer = fit(callback, tmp_path, Configured(Path("/data")))
    assert watched.reply == "SAVED"
    assert page.parse_unrestorable(bytes(watched.memory)) == ()
    callback._load(str(watched.saved(5)), 5)
    loader = torch.utils.data.DataLoader(torch.ones(8, 4), 2)
    again = Configured(Path("/other"))
    trainer.fit(again, loader, ckpt_path=callback._path, weights_only=False)


def test_a_file_that_an_older_callback_wrote_is_refused_with_what_to_do(
    callback: adapter.LightningCallback, watched: Watched, tmp_path: Path
) -> None:
    callback._weights_only = False
    watched.order(OrderKind.CHECKPOINT, 5)
    fit(callback, tmp_path, Configured(Path("/data")))
    callback._weights_only = True
    with pytest.raises(LoadFailed, match="weights_only=False to both"):
        callback._load(str(watched.saved(5)), 5)
