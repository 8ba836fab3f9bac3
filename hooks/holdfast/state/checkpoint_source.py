"""A durable checkpoint as a source of state. Only for files whose hashes were checked."""

from __future__ import annotations

from dataclasses import dataclass

import torch.distributed.checkpoint as dcp

from holdfast.contract.checkpoint_files import own_file
from holdfast.contract.storage import Folder
from holdfast.recording.placement import Placement
from holdfast.state.loading import Loaded, LoadFailed, Sizes, load_state
from holdfast.state.own_file import read_own
from holdfast.state.registered import OwnState, SharedState
from holdfast.state.saving import Savable
from holdfast.state.torch_checkpoint import FolderReader, torch_checkpoint


@dataclass(frozen=True)
class CheckpointSource:
    """Reads one checkpoint. Methods raise OSError, and LoadFailed for what is no checkpoint."""

    folder: Folder

    @property
    def path(self) -> str:
        """Path or URL of the checkpoint."""
        return self.folder.url

    def own(self, place: Placement) -> tuple[OwnState, bool]:
        """This rank's own state, or rank 0's when there were fewer ranks then."""
        is_mine = self.folder.exists(own_file(place.rank))
        name = own_file(place.rank if is_mine else 0)
        try:
            with self.folder.open(name) as stream:
                own: OwnState = read_own(stream)
        except ValueError as error:
            raise LoadFailed(f"{name}: {error}") from error
        if not is_mine and own["world_size"] > place.rank:
            raise LoadFailed(f"rank {place.rank}'s own state is missing")
        return own, is_mine

    def sizes(self) -> Sizes:
        """What torch's index lists; raises Refused when it holds more than tensors."""
        saved = FolderReader(self.folder).read_metadata().state_dict_metadata
        return {key: (entry.size, entry.properties.dtype) for key, entry in saved.items()}

    def fill(self, shared: SharedState) -> None:
        """Read them with torch.distributed.checkpoint, which also reshards."""
        with torch_checkpoint(LoadFailed):
            dcp.load(dict(shared), storage_reader=FolderReader(self.folder), no_dist=True)


def load_checkpoint(folder: Folder, savable: Savable, place: Placement) -> Loaded:
    """Load everything from a checkpoint; see load_state."""
    return load_state(CheckpointSource(folder), savable, place)
