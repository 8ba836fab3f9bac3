"""Transformers: one callback; the Trainer saves and loads with its own functions.

holdfast = TransformersCallback(trainer)
trainer.add_callback(holdfast)
trainer.train(resume_from_checkpoint=holdfast.resume_path())
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from transformers import Trainer, TrainerCallback
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR, SaveStrategy

from holdfast.adapters.framework_files import check_root, make_durable
from holdfast.job import Job
from holdfast.recording.interface import recording
from holdfast.state.loading import LoadFailed
from holdfast.state.registered import is_finite
from holdfast.state.saving import Savable


class TransformersCallback(TrainerCallback):  # type: ignore[misc]
    """Tells Holdfast the Trainer's steps, saves what is ordered and stops where that is ordered."""

    def __init__(self, trainer: Trainer) -> None:
        check_root("the Trainer")
        self._trainer = trainer
        self._path: str | None = None
        savable = Savable(save=self._save, load=self._load, own_is_finite=self._is_finite)
        self._job = Job(savable, recording())

    def resume_path(self) -> str | None:
        """For `train(resume_from_checkpoint=…)`: a checkpoint that all ranks verified, or None.

        Call it once, on every rank. Raises ResumeFailed when there are checkpoints and none is fit.
        """
        self._job.resume()
        return self._path

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The model and all else are loaded."""
        self._job.start_loop()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """An optimizer step is done; the Trainer itself would save just after this."""
        if not self._job.end_step(is_boundary=True):
            control.should_training_stop = True

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """No more steps."""
        self._job.end_loop()

    def _save(self, path: str, step: int) -> None:
        with self._directed_to(path):
            self._trainer._save_checkpoint(self._trainer.model, None)
        make_durable(path)

    @contextlib.contextmanager
    def _directed_to(self, path: str) -> Iterator[None]:
        """The Trainer writes whole checkpoints into this directory, and does nothing else."""
        trainer, configured = self._trainer, self._trainer.args
        trainer.args = copy.copy(configured)
        trainer.args.output_dir = path
        trainer.args.save_strategy = SaveStrategy.NO  # others wait in a barrier for the best model
        trainer.args.save_total_limit = None
        trainer.args.save_only_model = False
        trainer.args.save_on_each_node = False
        trainer.args.push_to_hub = False
        try:
            yield
        finally:
            trainer.args = configured

    def _load(self, path: str, step: int) -> None:
        """Try the weights; `train` loads them again, with all the rest."""
        folders = list(Path(path).glob(f"{PREFIX_CHECKPOINT_DIR}-*"))
        if not folders:
            raise LoadFailed("it was not saved by the Trainer")
        self._path = str(folders[0])
        # Sharded models are made while training starts, so nothing can be tried before that.
        if not (self._trainer.is_fsdp_enabled or self._trainer.is_deepspeed_enabled):
            self._trainer._load_from_checkpoint(self._path)

    def _is_finite(self) -> bool:
        return is_finite(dict(self._trainer.model.named_parameters()))
