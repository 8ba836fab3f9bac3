"""Accelerate: `save_state` and `load_state` behind the three lines; the loop stays the user's.

job = holdfast.adapters.accelerate.attach(accelerator)      # after accelerator.prepare
job.resume()
for batch in job.steps(loader, epochs=3):
    ...
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.adapters.framework_files import check_root, make_durable
from holdfast.job import Job
from holdfast.recording.interface import recording
from holdfast.state.loading import LoadFailed
from holdfast.state.registered import is_finite
from holdfast.state.saving import Savable

if TYPE_CHECKING:
    from accelerate import Accelerator

FOLDER = "accelerate"
"""What Accelerate wrote, beside Holdfast's own files of the checkpoint."""


def attach(accelerator: Accelerator) -> Job:
    """A job that saves whatever the accelerator has prepared or registered for checkpointing.

    `job.steps(loader)` takes the prepared loader, and continues where it was. A loop of another
    shape calls `start_loop`, `end_step` and `end_loop`, and finds its place in the data itself.
    """
    check_root("Accelerate")

    def save(path: str, step: int) -> None:
        with _shared_directory(accelerator):
            accelerator.save_state(str(Path(path, FOLDER)))
        make_durable(path)

    def load(path: str, step: int) -> None:
        folder = Path(path, FOLDER)
        if not folder.is_dir():
            raise LoadFailed("it was not saved by Accelerate")
        accelerator.load_state(str(folder))

    def numbers_are_finite() -> bool:
        return all(is_finite(dict(model.named_parameters())) for model in accelerator._models)

    return Job(Savable(save=save, load=load, own_is_finite=numbers_are_finite), recording())


@contextlib.contextmanager
def _shared_directory(accelerator: Accelerator) -> Iterator[None]:
    """All nodes write into one directory, under the name that we give."""
    configured = accelerator.project_configuration
    ours = copy.copy(configured)
    ours.automatic_checkpoint_naming = False
    ours.save_on_each_node = False
    accelerator.project_configuration = ours
    try:
        yield
    finally:
        accelerator.project_configuration = configured
