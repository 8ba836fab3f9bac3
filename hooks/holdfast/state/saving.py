"""Writes this rank's part of a checkpoint into a fresh folder."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed.checkpoint as dcp

from holdfast.contract.checkpoint_files import (
    TORCH_METADATA,
    FolderMark,
    account_file,
    added_names,
    claim_folder,
    own_file,
)
from holdfast.contract.storage import Folder, LocalFolder, sync_directory
from holdfast.recording.placement import Placement
from holdfast.state.data_position import Position
from holdfast.state.optimizer_state import take_optimizer
from holdfast.state.own_file import write_own
from holdfast.state.own_state import encode
from holdfast.state.registered import (
    OwnState,
    Registered,
    SharedState,
    inner_model,
    is_finite,
    parameter_names,
    shared_parameters,
    take_model,
    take_other,
)
from holdfast.state.torch_checkpoint import FolderWriter, torch_checkpoint

SaveFunction = Callable[[str, int], object]
LoadFunction = Callable[[str, int], object]


class SaveFailed(Exception):
    """torch could not write the checkpoint."""


@dataclass(frozen=True)
class Savable:
    """What is saved, and how: registered objects, or the user's own functions."""

    registered: Registered = field(default_factory=Registered)
    save: SaveFunction | None = None
    load: LoadFunction | None = None
    own_is_finite: Callable[[], bool] = lambda: True
    """Whether the numbers that `save` will write are; asked before it is called."""
    trial: Callable[[], Iterable[str]] = tuple
    """What of that `load` could not read, with what to do instead; asked at the first steps."""

    def __bool__(self) -> bool:
        return bool(self.registered) or self.save is not None


@dataclass(frozen=True)
class Mark:
    """The moment that is saved."""

    job: str
    attempt: int
    step: int
    identifier: str
    ancestors: tuple[str, ...]
    """Checkpoints that this one goes back to, newest first, as far as this process knows."""
    position: Position


def write_checkpoint(
    folder: Folder,
    savable: Savable,
    mark: Mark,
    place: Placement,
    meet: Callable[[], None] = lambda: None,
) -> int:
    """Write this rank's files, durably; answers their bytes. Collective where torch's saver is.

    `meet` is called between what this rank does alone and what it does with the others; it raises
    when one of them could not do the first part, for whom torch's saver would wait half an hour.
    Raises OSError (NotOurs where something else lies there), CannotSave, SaveFailed, and whatever
    the user's own function raises.
    """
    uses_group = bool(savable.registered.models or savable.registered.optimizers)
    if uses_group and (problem := place.group_problem()):
        raise SaveFailed(problem)
    claim_folder(folder, FolderMark(mark.job, mark.attempt, mark.step, mark.identifier))
    if folder.exists(own_file(place.rank)):
        raise SaveFailed(f"{folder.url} already holds a checkpoint")
    shared, own = take_state(savable.registered, mark, place.world_size)
    plain, tensors = encode(own)
    numbers = {**shared, **own_numbers(savable.registered, own)}
    finite = is_finite(numbers) and savable.own_is_finite()
    mine = account(savable, mark, place, finite)
    folder.write(account_file(place.rank), json.dumps(mine).encode())
    with folder.create(own_file(place.rank)) as stream:
        write_own(stream, plain, tensors)
    meet()
    if uses_group:
        _write_shared(folder, shared, place)
    if savable.save is not None:
        before = folder.names()
        savable.save(folder.url, mark.step)
        if isinstance(folder, LocalFolder):  # what the function wrote has a name only then
            sync_directory(folder.path)
        mine["files"] = added_names(before, folder.names())
        folder.write(account_file(place.rank), json.dumps(mine).encode())
    return sum(folder.size(name) for name in own_names(folder, place.rank))


def own_names(folder: Folder, rank: int) -> list[str]:
    """Files of a checkpoint that this rank wrote, rank 0 also for all (torch's metadata)."""
    mine = [name for name in folder.names() if name.startswith(f"__{rank}_")]
    return [*mine, TORCH_METADATA] if rank == 0 and folder.exists(TORCH_METADATA) else mine


def take_state(registered: Registered, mark: Mark, world_size: int) -> tuple[SharedState, OwnState]:
    """Everything registered, taken apart into shared tensors and this rank's own state."""
    shared: SharedState = {}
    own: OwnState = {"models": {}, "optimizers": {}, "others": {}}
    own |= {"position": mark.position, "world_size": world_size, "step": mark.step}
    for name, model in registered.models.items():
        tensors, own["models"][name] = take_model(name, model, world_size)
        shared |= tensors
    # Only now: FSDP2 holds other parameters behind a forward pass that no backward pass followed,
    # until a module is asked for its state.
    names = parameter_names(registered.models)
    shared_ids = shared_parameters(registered.models, world_size)
    for name, optimizer in registered.optimizers.items():
        tensors, own["optimizers"][name] = take_optimizer(name, optimizer, names, shared_ids)
        shared |= tensors
    for name, thing in registered.others.items():
        own["others"][name] = take_other(thing)
    return shared, own


def _write_shared(folder: Folder, shared: SharedState, place: Placement) -> None:
    writer = FolderWriter(folder)
    alone = place.group is None
    with torch_checkpoint(SaveFailed):
        dcp.save(dict(shared), storage_writer=writer, process_group=place.group, no_dist=alone)


def account(savable: Savable, mark: Mark, place: Placement, finite: bool | None) -> dict[str, Any]:
    """What a rank says of what it saved, for the manifest. `finite` None: nobody looked yet."""
    return {
        "job": mark.job,
        "attempt": mark.attempt,
        "step": mark.step,
        "identifier": mark.identifier,
        "ancestors": list(mark.ancestors),
        "rank": place.rank,
        "world_size": place.world_size,
        "finite": finite,
        "torch": torch.__version__,
        "models": sorted(savable.registered.models),
        "optimizers": sorted(savable.registered.optimizers),
        "others": sorted(savable.registered.others),
        "own_function": savable.save is not None,
        "files": [],
        "position": {"epoch": mark.position.epoch, "taken": mark.position.taken},
        "random_state": mark.position.now is not None,
    }


def own_numbers(registered: Registered, own: OwnState) -> SharedState:
    """Own parameters and optimizer tensors; buffers may hold infinities on purpose (masks)."""
    values = {
        f"{name}/{title}/{key}": value
        for name, optimizer in own["optimizers"].items()
        for title, state in optimizer["own_values"].items()
        for key, value in state.items()
    }
    for name, model in registered.models.items():
        parameters = dict(inner_model(model).named_parameters(remove_duplicate=False))
        kept = own["models"][name]
        values |= {f"{name}/{key}": kept[key] for key in kept.keys() & parameters.keys()}
    return {key: value for key, value in values.items() if isinstance(value, torch.Tensor)}
