"""The objects a user named to be saved: sorted by kind, taken apart into shared and own state.

Shared tensors are written once for all ranks and can be loaded by any number of ranks: DTensors,
and the parameters of a model that is alone or replicated by DDP over all ranks. Everything else is
this rank's own: buffers (ranks' batch statistics differ), plain tensors that may be different
shards under one name, schedulers, scalers and the like.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

from holdfast.guard import Guard
from holdfast.own_state import NotPlain, encode

SharedState = dict[str, torch.Tensor]
OwnState = dict[str, Any]


class CannotRegister(TypeError):
    """What was handed to `attach` can't be saved; says what to hand over instead."""


@dataclass(frozen=True)
class Registered:
    """What is saved, by the user's names."""

    models: dict[str, Any] = field(default_factory=dict)
    optimizers: dict[str, Any] = field(default_factory=dict)
    others: dict[str, Any] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.models or self.optimizers or self.others)


def register(objects: dict[str, Any]) -> Registered:
    """Sort objects by kind. None is left out; a plain DataLoader needs no saving of its own."""
    registered = Registered()
    for name, thing in objects.items():
        if thing is None:
            continue
        if isinstance(thing, torch.nn.Module):
            registered.models[name] = _checked_model(name, thing)
        elif isinstance(thing, torch.optim.Optimizer):
            registered.optimizers[name] = thing
            _check_groups(name, thing)
        elif isinstance(thing, torch.Generator) or (
            hasattr(thing, "state_dict") and hasattr(thing, "load_state_dict")
        ):
            registered.others[name] = thing
            _check_other(name, thing)
        elif not isinstance(thing, DataLoader):
            raise CannotRegister(
                f"attach({name}=…): a {type(thing).__name__} has no state_dict and "
                "load_state_dict; give it both, or pass save= and load= functions"
            )
    return registered


def take_other(thing: Any) -> Any:
    """The state of an object that is neither model nor optimizer."""
    return thing.get_state() if isinstance(thing, torch.Generator) else thing.state_dict()


def give_other(thing: Any, state: Any) -> None:
    """Load state that was taken before."""
    if isinstance(thing, torch.Generator):
        thing.set_state(state)
    else:
        thing.load_state_dict(state)


def _check_other(name: str, thing: Any) -> None:
    """Try whether its state can be saved, so that this is heard now and not at the first save.

    A loader is not asked, as it may start its workers to answer. An object that can't tell its
    state yet is believed to be able to later.
    """
    if hasattr(thing, "__iter__"):
        return
    ask = Guard(lambda: None).wrap(f"that asks {name} for its state", take_other, None)
    _check_plain(name, {"others": {name: ask(thing)}})


def _check_groups(name: str, optimizer: Any) -> None:
    groups = [
        {key: value for key, value in group.items() if key != "params"}
        for group in optimizer.param_groups
    ]
    _check_plain(name, {"optimizers": {name: {"groups": groups}}})


def _check_plain(name: str, own: OwnState) -> None:
    try:
        encode(own)
    except NotPlain as error:
        raise CannotRegister(f"attach({name}=…): {error}") from None


def _checked_model(name: str, model: Any) -> Any:
    from torch.distributed.fsdp import FullyShardedDataParallel

    if any(isinstance(part, FullyShardedDataParallel) for part in model.modules()):
        raise CannotRegister(
            f"attach({name}=…): FullyShardedDataParallel keeps flat parameters; use fully_shard "
            "(FSDP2), or pass save= and load= functions"
        )
    return model


def inner_model(model: Any) -> Any:
    """The user's own module inside DDP and torch.compile, so that names don't depend on them."""
    while True:
        if isinstance(model, DistributedDataParallel):
            model = model.module
        elif hasattr(model, "_orig_mod"):
            model = model._orig_mod
        else:
            return model


def is_replicated(model: Any, world_size: int) -> bool:
    """Whether every rank holds the same parameters, as far as torch promises it."""
    if world_size == 1:
        return True
    while hasattr(model, "_orig_mod"):
        model = model._orig_mod
    return (
        isinstance(model, DistributedDataParallel) and int(model.process_group.size()) == world_size
    )


def take_model(name: str, model: Any, world_size: int) -> tuple[SharedState, OwnState]:
    """A model's state; tensors are the live ones, not copies."""
    inner = inner_model(model)
    replicated = is_replicated(model, world_size)
    parameters = {key for key, _ in inner.named_parameters(remove_duplicate=False)}
    shared: SharedState = {}
    own: OwnState = {}
    for key, value in inner.state_dict().items():
        if isinstance(value, DTensor) or (replicated and key in parameters):
            shared[f"{name}/{key}"] = value
        else:
            own[key] = value
    return shared, own


def parameter_names(models: dict[str, Any]) -> dict[int, str]:
    """id of a parameter -> its name, over all models."""
    return {
        id(parameter): f"{name}.{key}"
        for name, model in models.items()
        for key, parameter in inner_model(model).named_parameters()
    }


def shared_parameters(models: dict[str, Any], world_size: int) -> set[int]:
    """ids of the parameters whose plain optimizer state is the same on every rank."""
    return {
        id(parameter)
        for model in models.values()
        if is_replicated(model, world_size)
        for parameter in model.parameters()
    }


def is_finite(tensors: SharedState) -> bool:
    """Whether every number is one."""
    return all(has_only_numbers(_local(tensor)) for tensor in tensors.values())


def has_only_numbers(tensor: torch.Tensor) -> bool:
    """Whether a plain tensor is free of NaN and infinities.

    By its least and its greatest element, from which neither can hide: one reading without a mask,
    many times as fast as asking for each element.
    """
    if not (tensor.is_floating_point() or tensor.is_complex()) or tensor.numel() == 0:
        return True
    elements = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
    if elements.element_size() == 1:
        elements = elements.float()
    return all(bool(torch.isfinite(end)) for end in torch.aminmax(elements))


def _local(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to_local().detach() if isinstance(tensor, DTensor) else tensor.detach()
