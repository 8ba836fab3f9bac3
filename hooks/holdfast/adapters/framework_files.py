"""What a framework's own saver leaves to us: where it may write, and that files outlive a crash."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from holdfast.contract import environment
from holdfast.contract.storage import is_url, sync_directory, sync_file
from holdfast.state.registered import CannotRegister


def check_root(framework: str) -> None:
    """Raises CannotRegister when checkpoints go where this framework's saver can't write."""
    root = os.environ.get(environment.CHECKPOINT_DIR, "")
    if is_url(root):
        raise CannotRegister(
            f"{framework} saves into a directory, and checkpoint.dir is the URL {root}: set it to "
            "a directory that all nodes see"
        )


def make_durable(directory: str) -> None:
    """Every file below is on storage when this returns; the frameworks leave that to the kernel.

    Each rank does it for all files, as it can't know which ones it wrote: what another node has
    written is clean here and costs nothing.
    """
    for folder, _, names in os.walk(directory, topdown=False):
        for name in names:
            # Another rank may be about to rename a file of its own.
            with contextlib.suppress(FileNotFoundError):
                sync_file(Path(folder, name))
        sync_directory(Path(folder))
