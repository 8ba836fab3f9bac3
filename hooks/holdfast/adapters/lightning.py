"""Lightning: one callback, the last in the list; the Trainer saves and loads as it always does.

    holdfast = LightningCallback()
    trainer = Trainer(callbacks=[..., holdfast])
    trainer.fit(model, ckpt_path=holdfast.resume_path(trainer, model))

A pass over the data is continued where it was if the loader has `state_dict` and `load_state_dict`;
any other loader Lightning begins anew.

`fit` reads a checkpoint with weights_only=True unless it is told otherwise, so what it would refuse
is no checkpoint: it is read back as it is written, and hyperparameters are tried at the first step.
"""

from __future__ import annotations

import contextlib
import io
import pickle
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from holdfast.adapters.framework_files import check_root, make_durable
from holdfast.job import Job
from holdfast.recording.interface import recording
from holdfast.state.loading import LoadFailed
from holdfast.state.registered import is_finite
from holdfast.state.saving import Savable, SaveFailed

if TYPE_CHECKING or "pytorch_lightning" not in sys.modules:
    from lightning.pytorch import Callback, LightningModule, Trainer
    from lightning.pytorch.plugins.io import AsyncCheckpointIO
else:  # the same framework under its older name; a script uses one of them throughout
    from pytorch_lightning import Callback, LightningModule, Trainer
    from pytorch_lightning.plugins.io import AsyncCheckpointIO

FILE = "lightning.ckpt"

SHARDED_REST = "meta.pt"
"""Where FILE is a folder, sharded by torch's own saver: what Lightning writes beside that.
DeepSpeed's folder has none."""


class LightningCallback(Callback):  # type: ignore[misc]
    """Tells Holdfast the Trainer's steps, saves what is ordered and stops where that is ordered."""

    def __init__(self, *, weights_only: bool = True) -> None:
        """`weights_only`: as `fit` is given it. With False nothing that was saved is looked at
        before `fit` loads it, and there it may run anything that is in it."""
        check_root("Lightning")
        self._weights_only = weights_only
        self._path: str | None = None
        self._trainer: Trainer | None = None
        self._model: LightningModule | None = None
        savable = Savable(
            save=self._save,
            load=self._load,
            own_is_finite=self._is_finite,
            trial=self._try_hyperparameters,
        )
        self._job = Job(savable, recording())
        self._optimizer_steps = 0
        self._is_first_batch = True

    def resume_path(self, trainer: Trainer, model: LightningModule) -> str | None:
        """For `fit(ckpt_path=…)`: a checkpoint that all ranks verified, or None.

        Call it once, on every rank. Raises ResumeFailed when there are checkpoints and none is fit.
        """
        self._trainer, self._model = trainer, model
        trainer.strategy.setup_environment()  # joins the ranks, as fit() does first of all
        self._job.resume()
        return self._path

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """The loaders are started next, and draw their seeds; Lightning keeps no generators."""
        self._trainer, self._model = trainer, pl_module
        self._job.restore_random_numbers()

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Everything is loaded."""
        self._optimizer_steps = trainer.global_step
        self._is_first_batch = True
        self._job.start_loop()

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """In the middle of a pass, the seeds were drawn before the checkpoint was made."""
        if self._is_first_batch and batch_idx > 0:
            self._job.restore_random_numbers()
        self._is_first_batch = False

    def on_train_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """A step, unless its gradients are still being gathered."""
        if trainer.global_step == self._optimizer_steps:
            return
        self._optimizer_steps = trainer.global_step
        if not self._job.end_step(is_boundary=pl_module.automatic_optimization):
            trainer.should_stop = True
            # The least that a training shall last does not bind whoever ends the job.
            trainer.fit_loop.min_epochs = 0
            trainer.fit_loop.epoch_loop.min_steps = None

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """No more steps."""
        self._job.end_loop()

    def _save(self, path: str, step: int) -> None:
        assert self._trainer is not None
        with contextlib.ExitStack() as failed:
            # All meet when it is written. Whoever could not write must come too, or the others
            # would take its next gradients for that.
            failed.callback(self._trainer.strategy.barrier, "Trainer.save_checkpoint")
            with _written_at_once(self._trainer):
                self._trainer.save_checkpoint(Path(path, FILE))
            failed.pop_all()
        if self._weights_only and self._trainer.is_global_zero:
            self._read_back(Path(path, FILE))
        make_durable(path)

    def _read_back(self, file: Path) -> None:
        """As `fit` will; no numbers are read for it. Raises SaveFailed."""
        if not file.exists():
            raise SaveFailed(f"Lightning had not written {file.name} when it said that it had")
        kept = file / SHARDED_REST if file.is_dir() else file
        if not kept.exists():
            return  # its strategy reads back what it wrote
        try:
            _read(kept)
        except pickle.UnpicklingError as error:
            raise SaveFailed(f"what Lightning wrote {_only_otherwise(error)}") from None

    def _try_hyperparameters(self) -> Iterator[str]:
        """What would be refused of what `save_hyperparameters` keeps."""
        if not self._weights_only or self._trainer is None:
            return
        for thing in (self._model, getattr(self._trainer, "datamodule", None)):
            if kept := dict(getattr(thing, "hparams", None) or {}):
                stream = io.BytesIO()
                torch.save(kept, stream)
                stream.seek(0)
                try:
                    torch.load(stream, map_location="cpu", weights_only=True)
                except pickle.UnpicklingError as error:
                    name = type(thing).__name__
                    yield f"save_hyperparameters() of {name} {_only_otherwise(error)}"

    def _load(self, path: str, step: int) -> None:
        """See that it fits; `fit` loads it."""
        file = Path(path, FILE)
        if not file.exists():
            raise LoadFailed("it was not saved by Lightning")
        if file.is_file() and self._weights_only:
            self._check_shapes(file)
        self._path = str(file)

    def _check_shapes(self, file: Path) -> None:
        """Names and shapes of the weights; no numbers are read for it."""
        assert self._model is not None
        try:
            saved = _read(file)["state_dict"]
        except pickle.UnpicklingError as error:
            raise LoadFailed(f"what Lightning wrote {_only_otherwise(error)}") from None
        for name, value in self._model.state_dict().items():
            if name in saved and saved[name].shape != value.shape:
                raise LoadFailed(
                    f"{name} is {list(value.shape)} here and {list(saved[name].shape)} in the "
                    "checkpoint"
                )

    def _is_finite(self) -> bool:
        assert self._model is not None
        return is_finite(dict(self._model.named_parameters()))


@contextlib.contextmanager
def _written_at_once(trainer: Trainer) -> Iterator[None]:
    """Not by a thread that goes on writing: what is sealed must be there."""
    strategy = trainer.strategy
    given = strategy.checkpoint_io
    if not isinstance(given, AsyncCheckpointIO) or given.checkpoint_io is None:
        yield
        return
    strategy.checkpoint_io = given.checkpoint_io
    try:
        yield
    finally:
        strategy.checkpoint_io = given


def _read(file: Path) -> Any:
    """Names, shapes and plain values, without any numbers."""
    return torch.load(file, map_location="meta", mmap=True, weights_only=True)


def _only_otherwise(error: Exception) -> str:
    """What is in the way, in one line, and what to do."""
    found = re.search(r"GLOBAL ([\w.]+)", str(error))
    what = f"a {found[1]}" if found else "something other than plain values and tensors"
    return (
        f"holds {what}, which `fit` refuses to read with weights_only=True; keep plain values, or "
        "give weights_only=False to both LightningCallback and fit"
    )
