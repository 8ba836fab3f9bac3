"""The adapter for Accelerate, in one process."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("accelerate")

import torch
from accelerate import Accelerator
from accelerate.utils import ProjectConfiguration
from tests.integration.adapters.watched import Watched

from holdfast.adapters import accelerate as adapter
from holdfast.contract.page import OrderKind, Word
from holdfast.job import attach
from holdfast.state.loading import LoadFailed

pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def _watch(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapter, "recording", lambda: watched.recorder)


def test_an_ordered_step_is_saved_where_holdfast_says_and_loaded_from_there(
    watched: Watched, tmp_path: Path
) -> None:
    naming = ProjectConfiguration(
        project_dir=str(tmp_path / "own"), automatic_checkpoint_naming=True
    )
    accelerator = Accelerator(cpu=True, project_config=naming)
    model = accelerator.prepare(torch.nn.Linear(2, 1))
    job = adapter.attach(accelerator)
    watched.order(OrderKind.CHECKPOINT, 2)
    for _ in job.steps(range(3)):
        with torch.no_grad():
            model.weight.fill_(job.step)
    assert watched.reply == "SAVED"
    assert not (tmp_path / "own" / "checkpoints").exists()
    assert accelerator.project_configuration is naming
    assert job._savable.load is not None
    job._savable.load(str(watched.saved(2)), 2)
    assert model.weight.tolist() == [[1.0, 1.0]]


def test_what_accelerate_did_not_save_is_refused(tmp_path: Path) -> None:
    job = adapter.attach(Accelerator(cpu=True))
    assert job._savable.load is not None
    with pytest.raises(LoadFailed, match="not saved by Accelerate"):
        job._savable.load(str(tmp_path), 2)


def test_weights_that_are_no_numbers_are_said_to_be_none(watched: Watched) -> None:
    accelerator = Accelerator(cpu=True)
    model = accelerator.prepare(torch.nn.Linear(2, 1))
    with torch.no_grad():
        model.weight.fill_(float("inf"))
    job = adapter.attach(accelerator)
    watched.order(OrderKind.CHECKPOINT, 1)
    list(job.steps(range(2)))
    assert watched.account(1)["finite"] is False


def test_what_was_prepared_can_be_attached_by_name_loader_included(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.job.recording", lambda: watched.recorder)
    accelerator = Accelerator(cpu=True)
    plain = torch.nn.Linear(2, 1)
    model, optimizer, loader = accelerator.prepare(
        plain,
        torch.optim.AdamW(plain.parameters()),
        torch.utils.data.DataLoader(torch.ones(8, 2), 2),
    )
    job = attach(model=model, optimizer=optimizer, loader=loader)
    watched.order(OrderKind.CHECKPOINT, 3)
    for batch in job.steps(loader):
        accelerator.backward(model(batch).sum())
        optimizer.step()
        optimizer.zero_grad()
    assert watched.reply == "SAVED"
    assert watched.recorder.word(Word.HOOK_ERRORS) == 0
