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

from holdfast.guard import Guard, Raised, tried
from holdfast.state.data_position import says_where_it_is
from holdfast.state.own_state import NotPlain, encode

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
        _check_owner(name, thing)
        if isinstance(thing, torch.nn.Module):
            registered.models[name] = _checked_model(name, thing)
        elif isinstance(thing, torch.optim.Optimizer):
            registered.optimizers[name] = thing
            _check_optimizer(name, thing)
        elif isinstance(thing, DataLoader) and not says_where_it_is(thing):
            continue
        elif isinstance(thing, torch.Generator) or (
            hasattr(thing, "state_dict") and hasattr(thing, "load_state_dict")
        ):
            registered.others[name] = thing
            _check_other(name, thing)
        else:
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


def _check_owner(name: str, thing: Any) -> None:
    """Refuse by name what is known to keep its state where no state_dict tells of it."""
    inner = thing.optimizer if _wraps_an_optimizer(thing) else None
    for kind in (*type(thing).__mro__, *type(inner).__mro__):
        title = f"{kind.__module__}.{kind.__qualname__}"
        for prefix, instead in _ELSEWHERE.items():
            if title.startswith(prefix):
                raise CannotRegister(
                    f"attach({name}=…): the state of a {kind.__name__} is not what its state_dict "
                    f"says; {instead}"
                )


def _wraps_an_optimizer(thing: Any) -> bool:
    return isinstance(thing, torch.optim.Optimizer) and hasattr(thing, "optimizer")


_MEGATRON = (
    "pass save= and load= functions that call Megatron's save_checkpoint and load_checkpoint"
)
_DEEPSPEED = (
    "pass save= and load= functions that call the engine's save_checkpoint and load_checkpoint"
)
_APEX = "pass save= and load= functions that save its full state (master weights included)"

_ELSEWHERE = {
    "megatron.core.optimizer.": _MEGATRON,
    "megatron.optimizer.": _MEGATRON,
    "nemo.core.optim.": _MEGATRON,
    "apex.contrib.optimizers.": _APEX,
    "apex.fp16_utils.": _APEX,
    "deepspeed.runtime.engine.": _DEEPSPEED,
    "deepspeed.runtime.pipe.engine.": _DEEPSPEED,
    "deepspeed.runtime.hybrid_engine.": _DEEPSPEED,
    "deepspeed.runtime.zero.": _DEEPSPEED,
    "deepspeed.runtime.fp16.": _DEEPSPEED,
    "deepspeed.runtime.bf16_optimizer.": _DEEPSPEED,
    "torchtitan.components.optimizer.": (
        "attach each inner optimizer, under a name of its own, in its place"
    ),
    "torchtitan.optimizer.": "attach each inner optimizer, under a name of its own, in its place",
}
"""Where a class comes from -> what to do instead. apex.optimizers and deepspeed.ops are optimizers
like torch's own."""


def _check_optimizer(name: str, optimizer: Any) -> None:
    """Its state has to be told by parameter, as torch's optimizers tell it."""
    state = tried(optimizer.state_dict)
    if isinstance(state, Raised):
        # Sharded ones (torch's ZeroRedundancyOptimizer) want to be told to gather it first.
        told = f"{type(state.error).__name__}: {state.error}"
        raise CannotRegister(
            f"attach({name}=…): the state_dict of this {type(optimizer).__name__} fails ({told}); "
            "pass save= and load= functions"
        ) from state.error
    if not isinstance(state, dict) or not {"state", "param_groups"} <= state.keys():
        raise CannotRegister(
            f"attach({name}=…): the state_dict of this {type(optimizer).__name__} has no 'state' "
            "and 'param_groups'; attach each inner optimizer, under a name of its own, in its "
            "place, or pass save= and load= functions"
        )
    counted = [index for group in state["param_groups"] for index in group.get("params", ())]
    if counted != list(range(sum(len(group["params"]) for group in optimizer.param_groups))):
        raise CannotRegister(
            f"attach({name}=…): the state_dict of this {type(optimizer).__name__} does not number "
            "its parameters as torch's optimizers do; pass save= and load= functions"
        )
    _check_groups(name, state["param_groups"])


def _check_groups(name: str, groups: list[dict[str, Any]]) -> None:
    plain = [{key: value for key, value in group.items() if key != "params"} for group in groups]
    _check_plain(name, {"optimizers": {name: {"groups": plain}}})


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


def sharded_modules(models: dict[str, Any]) -> list[Any]:
    """Modules whose parameters FSDP2 gathers and shards again, of all models."""
    from torch.distributed.fsdp import FSDPModule

    return [
        part
        for model in models.values()
        for part in model.modules()
        if isinstance(part, FSDPModule)
    ]


def stepped_parameters(optimizers: dict[str, Any]) -> set[int]:
    """ids of the parameters that optimizers step."""
    return {
        id(parameter)
        for optimizer in optimizers.values()
        for group in optimizer.param_groups
        for parameter in group["params"]
    }


def is_trained(module: Any, stepped: set[int]) -> bool:
    """Whether a part that FSDP2 shards, or one inside of it, holds a parameter that is trained:
    one of these ids, where there are any. While it is gathered the optimizers know none of its
    parameters; then it is taken to be.
    """
    return any(
        parameter.requires_grad
        and (not stepped or id(parameter) in stepped or not isinstance(parameter, DTensor))
        for parameter in module.parameters()
    )


def replicated_parameters(model: Any, world_size: int) -> set[int]:
    """ids of the parameters that every rank holds alike, as far as torch promises it.

    Those that DDP was told to ignore (a rank's own experts) are not.
    """
    if world_size == 1:
        return {id(parameter) for parameter in model.parameters()}
    while hasattr(model, "_orig_mod"):
        model = model._orig_mod
    if not isinstance(model, DistributedDataParallel):
        return set()
    if int(model.process_group.size()) != world_size:
        return set()
    return {
        id(parameter)
        for name, parameter in model.module.named_parameters()
        if name not in model.parameters_to_ignore
    }


def take_model(name: str, model: Any, world_size: int) -> tuple[SharedState, OwnState]:
    """A model's state; tensors are the live ones, not copies."""
    inner = inner_model(model)
    state = inner.state_dict()
    replicated = replicated_parameters(model, world_size)
    alike = {
        key
        for key, parameter in inner.named_parameters(remove_duplicate=False)
        if id(parameter) in replicated
    }
    shared: SharedState = {}
    own: OwnState = {}
    for key, value in state.items():
        if isinstance(value, DTensor) or key in alike:
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
    return set().union(*(replicated_parameters(one, world_size) for one in models.values()))


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
