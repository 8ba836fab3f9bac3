"""The callback for the Trainer of Transformers, in one process and with a model of one layer."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("transformers")

import torch
from tests.integration.adapters.watched import Watched
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

from holdfast.adapters import transformers
from holdfast.contract.page import OrderKind
from holdfast.state.registered import CannotRegister

pytestmark = pytest.mark.torch

STEPS = 6


class Sentences(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        tokens = torch.arange(index, index + 4)
        return {"input_ids": tokens, "labels": tokens}


def make_trainer(output: Path, width: int = 8, **arguments: object) -> Trainer:
    config = GPT2Config(
        vocab_size=16, n_positions=4, n_embd=width, n_layer=1, n_head=1, bos_token_id=0
    )
    config.eos_token_id = 0
    given = {"save_strategy": "no", "report_to": [], "disable_tqdm": True, "use_cpu": True}
    own = TrainingArguments(output_dir=str(output), max_steps=STEPS, **{**given, **arguments})
    return Trainer(GPT2LMHeadModel(config), own, train_dataset=Sentences())


@pytest.fixture
def output(tmp_path: Path) -> Path:
    return tmp_path / "output"


@pytest.fixture(autouse=True)
def _watch(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transformers, "recording", lambda: watched.recorder)


def attached(trainer: Trainer) -> transformers.TransformersCallback:
    callback = transformers.TransformersCallback(trainer)
    trainer.add_callback(callback)
    return callback


def test_an_ordered_step_is_saved_by_the_trainer_and_nothing_else_is(
    watched: Watched, output: Path
) -> None:
    trainer = make_trainer(output, save_only_model=True, push_to_hub=False)
    arguments = trainer.args
    attached(trainer)
    watched.order(OrderKind.CHECKPOINT, 3)
    trainer.train()
    assert watched.reply == "SAVED"
    folder = watched.saved(3) / "checkpoint-3"
    written = {path.name for path in folder.iterdir()}
    assert {"optimizer.pt", "scheduler.pt", "trainer_state.json", "model.safetensors"} <= written
    assert trainer.args is arguments
    assert not list(output.glob("checkpoint-*"))
    assert trainer.state.global_step == STEPS


def test_a_stop_ends_the_training_after_the_step(watched: Watched, output: Path) -> None:
    trainer = make_trainer(output)
    attached(trainer)
    watched.order(OrderKind.STOP, 4)
    trainer.train()
    assert trainer.state.global_step == 4


def test_weights_that_are_no_numbers_are_said_to_be_none(watched: Watched, output: Path) -> None:
    trainer = make_trainer(output, learning_rate=0.0, weight_decay=0.0, max_grad_norm=0.0)
    with torch.no_grad():
        trainer.model.transformer.wte.weight[15] = float("nan")
    attached(trainer)
    watched.order(OrderKind.CHECKPOINT, 2)
    trainer.train()
    assert watched.account(2)["finite"] is False


def test_a_checkpoint_of_another_model_is_refused_by_its_shapes(
    watched: Watched, output: Path
) -> None:
    trainer = make_trainer(output)
    attached(trainer)
    watched.order(OrderKind.CHECKPOINT, 2)
    trainer.train()
    wider = attached(make_trainer(output, width=12))
    with pytest.raises(RuntimeError, match=r"size mismatch for transformer\.wte\.weight"):
        wider._load(str(watched.saved(2)), 2)


def test_a_url_is_refused_before_the_training(
    output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_CHECKPOINT_DIR", "s3://bucket/run")
    with pytest.raises(CannotRegister, match=r"s3://bucket/run.*a directory that all nodes see"):
        transformers.TransformersCallback(make_trainer(output))
