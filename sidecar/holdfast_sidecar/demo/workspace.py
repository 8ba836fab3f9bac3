"""The demonstration's own files: one directory on disk, one in shared memory, both removed."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from holdfast_sidecar.config.settings import PathSettings
from holdfast_sidecar.demo.leftovers import PREFIX, claimed, remove_leftovers
from holdfast_sidecar.demo.scenario import SAVE_EVERY_STEPS, SNAPSHOT_EVERY_STEPS


@dataclass(frozen=True)
class Workspace:
    """Where everything of one demonstration lies."""

    root: Path
    shm: Path

    @property
    def settings_file(self) -> Path:
        """holdfast.toml of the three nodes."""
        return self.root / "holdfast.toml"

    @property
    def server(self) -> Path:
        """Directory of the Redis-compatible server."""
        return self.root / "server"

    def log(self, name: str) -> Path:
        """What a node, or the undisturbed run, printed."""
        return self.root / f"{name}.log"

    def weights(self, name: str) -> Path:
        """SHA-256 of a run's final weights."""
        return self.root / f"{name}.sha256"

    def weights_hash(self, name: str) -> str:
        """What that file holds; empty when the run never got there."""
        path = self.weights(name)
        return path.read_text().strip() if path.exists() else ""


def write_settings(workspace: Workspace, save_every_steps: int) -> None:
    """Snapshots and checkpoints on a grid of steps; every file of the job inside the workspace."""
    workspace.settings_file.write_text(
        "[checkpoint]\n"
        f"dir = '{workspace.root / 'checkpoints'}'\n"
        f"every_steps = {save_every_steps}\n"
        "[snapshot]\n"
        f"every_steps = {SNAPSHOT_EVERY_STEPS}\n"
        "[paths]\n"
        f"shm_dir = '{workspace.shm}'\n"
        f"state_dir = '{workspace.root / 'state'}'\n"
    )


@contextmanager
def open_workspace(
    keep: Path | None, save_every_steps: int = SAVE_EVERY_STEPS
) -> Iterator[Workspace]:
    """A fresh workspace; `keep` names a directory whose files stay. What demonstrations left behind
    that were killed is removed first."""
    temporary, shared = Path(tempfile.gettempdir()), Path(PathSettings().shm_dir)
    remove_leftovers(temporary)
    remove_leftovers(shared)
    with ExitStack() as stack:
        if keep is None:
            root = stack.enter_context(_passing(temporary))
        else:
            root = keep.absolute()
            root.mkdir(parents=True)
        workspace = Workspace(root, stack.enter_context(_passing(shared)))
        write_settings(workspace, save_every_steps)
        yield workspace


@contextmanager
def _passing(parent: Path) -> Iterator[Path]:
    """A new directory that is gone afterwards."""
    path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
    try:
        with claimed(path):
            yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
