"""Gives what was saved back to the registered objects, wherever it is read from.

Without a collective: every rank reads for itself what it needs, so that one that fails leaves no
other waiting. What can be seen to be unfit is refused before any object is touched.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch

from holdfast.recording.placement import Placement
from holdfast.state.data_position import Position
from holdfast.state.optimizer_state import Allocate, give_optimizer, prepare_optimizer
from holdfast.state.registered import (
    OwnState,
    SharedState,
    give_other,
    inner_model,
    parameter_names,
)
from holdfast.state.saving import Savable

Sizes = Mapping[str, tuple[torch.Size, torch.dtype]]
"""Size over all ranks and type of each shared tensor, by its key."""


class LoadFailed(Exception):
    """What was saved does not fit what was registered, or could not be read."""


class StateSource(Protocol):
    """Where saved state comes from: a checkpoint, or a snapshot of this rank's."""

    @property
    def path(self) -> str:
        """What a user's own load function is given; empty where there is nothing for it."""

    def own(self, place: Placement) -> tuple[OwnState, bool]:
        """A rank's own state, and whether it was this rank's (or is rank 0's, for a new one)."""

    def sizes(self) -> Sizes:
        """What shared tensors there are."""

    def fill(self, shared: SharedState) -> None:
        """Read into these tensors, in place; for a DTensor, this rank's shard of it."""


@dataclass(frozen=True)
class Loaded:
    """What the loop needs to know of what was loaded."""

    step: int
    position: Position


def load_state(source: StateSource, savable: Savable, place: Placement) -> Loaded:
    """Load everything. Objects may be half loaded after an error: load another, whole, or end.

    Raises OSError, LoadFailed, what torch and the objects' load_state_dict raise, and what the
    user's own function raises.
    """
    own, is_mine = source.own(place)
    registered = savable.registered
    for kind in ("models", "optimizers", "others"):
        _check_names(getattr(registered, kind), own[kind], kind.removesuffix("s"))
    resized = own["world_size"] != place.world_size
    if registered.models or registered.optimizers:
        _load_tensors(source, savable, own, resized)
    for name, thing in registered.others.items():
        if not (resized and hasattr(thing, "__iter__")):  # a loader's place among other ranks
            give_other(thing, own["others"][name])
    if savable.load is not None:
        savable.load(source.path, own["step"])
    position: Position = own["position"]
    if not is_mine:
        # Another rank's random numbers would make two ranks draw the same.
        position = replace(position, now=None, pass_start=None, loader_state=None)
    return Loaded(own["step"], position)


def _load_tensors(source: StateSource, savable: Savable, own: OwnState, resized: bool) -> None:
    registered = savable.registered
    sizes = source.sizes()
    shared: SharedState = {}
    for name, model in registered.models.items():
        shared |= _model_tensors(name, model, own["models"][name], sizes, resized)
    names = parameter_names(registered.models)
    for name, optimizer in registered.optimizers.items():
        kept = own["optimizers"][name]
        shared |= prepare_optimizer(name, optimizer, names, kept, _allocation(sizes))
    if shared:
        source.fill(shared)
    for name, model in registered.models.items():
        _give_model(name, model, own["models"][name], shared)
    for name, optimizer in registered.optimizers.items():
        give_optimizer(name, optimizer, names, own["optimizers"][name], shared)


def _model_tensors(
    name: str, model: Any, mine: OwnState, sizes: Sizes, resized: bool
) -> SharedState:
    """The model's live tensors that are to be read; raises LoadFailed where it is another model."""
    inner = inner_model(model)
    state = inner.state_dict()
    if extra := [key for key in _keys_of(name, sizes) if key not in state]:
        raise LoadFailed(f"model {name!r} has no {extra[0]!r}, which is in the checkpoint")
    parameters = {key for key, _ in inner.named_parameters(remove_duplicate=False)}
    if resized and not parameters.isdisjoint(mine):
        raise LoadFailed(
            f"model {name!r} has parameters of neither DDP nor DTensor, so nobody knows how "
            "those of its ranks fit another number of ranks; pass save= and load= functions"
        )
    shared: SharedState = {}
    for key, value in state.items():
        if f"{name}/{key}" in sizes:
            _check_size(name, key, value, sizes[f"{name}/{key}"][0])
            shared[f"{name}/{key}"] = value
        elif key not in mine:
            raise LoadFailed(f"model {name!r} has {key!r}, which is not in the checkpoint")
        elif isinstance(mine[key], torch.Tensor):
            _check_size(name, key, value, mine[key].size())
    return shared


def _check_size(name: str, key: str, value: Any, saved: torch.Size) -> None:
    if isinstance(value, torch.Tensor) and value.size() != saved:
        raise LoadFailed(
            f"model {name!r}: {key} is {list(value.size())} here and {list(saved)} in the "
            "checkpoint"
        )


def _keys_of(name: str, saved: Iterable[str]) -> list[str]:
    return sorted(key.removeprefix(f"{name}/") for key in saved if key.startswith(f"{name}/"))


def _allocation(sizes: Sizes) -> Allocate:
    """Gives tensors for optimizer state: what is there now, or new ones like their parameter."""

    def allocate(key: str, parameter: Any, live: Any) -> Any:
        if key not in sizes:
            raise LoadFailed(f"{key!r} is not in the checkpoint")
        size, dtype = sizes[key]
        if isinstance(live, torch.Tensor) and (live.size(), live.dtype) == (size, dtype):
            return live  # else there would be both for a while, and state is most of the memory
        if parameter.size() == size:
            return torch.empty_like(parameter, dtype=dtype, requires_grad=False)
        return torch.empty(size, dtype=dtype)

    return allocate


def _give_model(name: str, model: Any, mine: OwnState, shared: SharedState) -> None:
    inner = inner_model(model)
    inner.load_state_dict(
        {
            key: shared[f"{name}/{key}"] if f"{name}/{key}" in shared else mine[key]
            for key in inner.state_dict()
        }
    )


def _check_names(registered: dict[str, Any], saved: dict[str, Any], kind: str) -> None:
    if missing := registered.keys() - saved.keys():
        what = "" if kind == "other" else f"{kind} "
        raise LoadFailed(f"{what}{sorted(missing)[0]!r} is not in the checkpoint")
