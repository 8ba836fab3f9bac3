"""Reads this rank's part of a verified checkpoint, then gives it to the registered objects.

Without a collective: every rank reads for itself what it needs, so that one that fails leaves no
other waiting.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.tensor import DTensor

from holdfast.checkpoint_files import own_file
from holdfast.data_position import Position
from holdfast.optimizer_state import give_optimizer, prepare_optimizer
from holdfast.placement import Placement
from holdfast.registered import OwnState, SharedState, inner_model, parameter_names
from holdfast.saving import Savable
from holdfast.torch_checkpoint import torch_checkpoint


class LoadFailed(Exception):
    """The checkpoint does not fit what was registered, or torch could not read it."""


@dataclass(frozen=True)
class Loaded:
    """What the loop needs to know of a checkpoint that was loaded."""

    step: int
    position: Position


def load_checkpoint(directory: Path, savable: Savable, place: Placement) -> Loaded:
    """Load everything. Objects may be half loaded after an error: load another, whole, or end.

    Raises OSError, LoadFailed, what torch and the objects' load_state_dict raise, and what the
    user's own function raises. Only to be called on files whose hashes were checked.
    """
    own, is_mine = _read_own(directory, place)
    resized = own["world_size"] != place.world_size
    registered = savable.registered
    if registered.models or registered.optimizers:
        shared = _prepare(directory, savable, own)
        _read_shared(directory, shared)
        _give_models(savable, own, shared, resized)
        names = parameter_names(registered.models)
        for name, optimizer in registered.optimizers.items():
            give_optimizer(name, optimizer, names, own["optimizers"][name], shared)
    for name, thing in registered.others.items():
        if not (resized and hasattr(thing, "__iter__")):  # a loader's place among other ranks
            _give_other(name, thing, own)
    if savable.load is not None:
        savable.load(str(directory), own["step"])
    position: Position = own["position"]
    if not is_mine:
        # Another rank's random numbers would make two ranks draw the same.
        position = replace(position, now=None, pass_start=None, loader_state=None)
    return Loaded(own["step"], position)


def _read_own(directory: Path, place: Placement) -> tuple[OwnState, bool]:
    """This rank's own state, or rank 0's when there were fewer ranks then."""
    path = directory / own_file(place.rank)
    is_mine = path.is_file()
    path = path if is_mine else directory / own_file(0)
    own: OwnState = torch.load(path, map_location="cpu", weights_only=False)
    if not is_mine and own["world_size"] > place.rank:
        raise LoadFailed(f"rank {place.rank}'s own state is missing")
    return own, is_mine


def _prepare(directory: Path, savable: Savable, own: OwnState) -> SharedState:
    """Tensors to read into: the models' live ones, fresh ones for the optimizers."""
    registered = savable.registered
    _check_names(registered.models, own["models"], "model")
    _check_names(registered.optimizers, own["optimizers"], "optimizer")
    saved = dcp.FileSystemReader(str(directory)).read_metadata().state_dict_metadata
    shared: SharedState = {}
    for name, model in registered.models.items():
        state = inner_model(model).state_dict()
        if extra := [key for key in _keys_of(name, saved) if key not in state]:
            raise LoadFailed(f"model {name!r} has no {extra[0]!r}, which is in the checkpoint")
        for key, value in state.items():
            if f"{name}/{key}" in saved:
                shared[f"{name}/{key}"] = value

    def allocate(key: str, parameter: Any) -> Any:
        return _like(saved[key], parameter)

    names = parameter_names(registered.models)
    for name, optimizer in registered.optimizers.items():
        shared |= prepare_optimizer(name, optimizer, names, own["optimizers"][name], allocate)
    return shared


def _keys_of(name: str, saved: Iterable[str]) -> list[str]:
    return sorted(key.removeprefix(f"{name}/") for key in saved if key.startswith(f"{name}/"))


def _like(saved: Any, parameter: Any) -> Any:
    """A tensor for optimizer state of this size: sharded as its parameter where sizes agree."""
    if isinstance(parameter, DTensor) and parameter.size() == saved.size:
        return torch.empty_like(parameter, dtype=saved.properties.dtype, requires_grad=False)
    return torch.empty(saved.size, dtype=saved.properties.dtype)


def _read_shared(directory: Path, shared: SharedState) -> None:
    if not shared:
        return
    reader = dcp.FileSystemReader(str(directory))
    with torch_checkpoint(LoadFailed):
        dcp.load(dict(shared), storage_reader=reader, no_dist=True)


def _give_models(savable: Savable, own: OwnState, shared: SharedState, resized: bool) -> None:
    for name, model in savable.registered.models.items():
        inner = inner_model(model)
        mine = own["models"][name]
        parameters = {key for key, _ in inner.named_parameters(remove_duplicate=False)}
        if resized and not parameters.isdisjoint(mine):
            raise LoadFailed(
                f"model {name!r} was neither DDP nor DTensor, so nobody knows how its ranks' "
                "parameters fit another number of ranks; pass save= and load= functions"
            )
        state = {
            key: shared[f"{name}/{key}"] if f"{name}/{key}" in shared else mine[key]
            for key in inner.state_dict()
            if f"{name}/{key}" in shared or key in mine
        }
        inner.load_state_dict(state)


def _give_other(name: str, thing: Any, own: OwnState) -> None:
    if name not in own["others"]:
        raise LoadFailed(f"{name!r} is not in the checkpoint")
    state = own["others"][name]
    if isinstance(thing, torch.Generator):
        thing.set_state(state)
    else:
        thing.load_state_dict(state)


def _check_names(registered: dict[str, Any], saved: dict[str, Any], kind: str) -> None:
    if missing := registered.keys() - saved.keys():
        raise LoadFailed(f"{kind} {sorted(missing)[0]!r} is not in the checkpoint")
