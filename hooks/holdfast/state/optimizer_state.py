"""An optimizer's state under the names of its parameters, taken and given back.

State that is made lazily (Adam before its first step) or only for some parameters comes back as it
was: what to load is read from the checkpoint, not from what the fresh optimizer happens to hold.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from holdfast.state.own_state import CannotSave
from holdfast.state.registered import OwnState, SharedState

Allocate = Callable[[str, Any, Any], Any]
"""(key in the checkpoint, the parameter it belongs to, what the optimizer has there now or None)
-> a tensor to load it into."""


def take_optimizer(
    name: str, optimizer: Any, names: dict[int, str], shared_ids: set[int]
) -> tuple[SharedState, OwnState]:
    """Shared tensors under `<name>/<parameter>/<key>`, the rest as this rank's own."""
    parameters = _parameters(optimizer)
    titles = _titles(parameters, names)
    if names:
        _check_titles(name, parameters, names)
    state_dict = optimizer.state_dict()
    shared: SharedState = {}
    shared_keys: dict[str, list[str]] = {}
    own_values: dict[str, dict[str, Any]] = {}
    for index, values in state_dict["state"].items():
        title, is_shared = titles[index], id(parameters[index]) in shared_ids
        for key, value in values.items():
            if isinstance(value, DTensor) or (is_shared and isinstance(value, torch.Tensor)):
                shared[f"{name}/{title}/{key}"] = value
                shared_keys.setdefault(title, []).append(key)
            else:
                own_values.setdefault(title, {})[key] = value
    groups = [
        {**group, "params": [titles[index] for index in group["params"]]}
        for group in state_dict["param_groups"]
    ]
    extra = {k: v for k, v in state_dict.items() if k not in ("state", "param_groups")}
    return shared, {
        "groups": groups,
        "shared_keys": shared_keys,
        "own_values": own_values,
        "extra": extra,
    }


def prepare_optimizer(
    name: str, optimizer: Any, names: dict[int, str], own: OwnState, allocate: Allocate
) -> SharedState:
    """Tensors to load the shared state into; raises when the parameters are not the same."""
    parameters = _parameters(optimizer)
    by_title = dict(zip(_titles(parameters, names), parameters, strict=True))
    saved = {title for group in own["groups"] for title in group["params"]}
    if saved != by_title.keys():
        odd = sorted(saved ^ by_title.keys())[:3]
        raise ValueError(f"optimizer {name!r} has other parameters than the checkpoint: {odd}")
    if len(own["groups"]) != len(optimizer.param_groups):
        raise ValueError(
            f"optimizer {name!r} has {len(optimizer.param_groups)} groups of parameters, and "
            f"{len(own['groups'])} in the checkpoint"
        )
    return {
        f"{name}/{title}/{key}": allocate(
            f"{name}/{title}/{key}",
            by_title[title],
            optimizer.state.get(by_title[title], {}).get(key),
        )
        for title, keys in own["shared_keys"].items()
        for key in keys
    }


def give_optimizer(
    name: str, optimizer: Any, names: dict[int, str], own: OwnState, shared: SharedState
) -> None:
    """Load state that was taken before."""
    titles = _titles(_parameters(optimizer), names)
    index_of = {title: index for index, title in enumerate(titles)}
    state: dict[int, dict[str, Any]] = {}
    for title, keys in own["shared_keys"].items():
        for key in keys:
            state.setdefault(index_of[title], {})[key] = shared[f"{name}/{title}/{key}"]
    for title, values in own["own_values"].items():
        state.setdefault(index_of[title], {}).update(values)
    current = optimizer.state_dict()["param_groups"]
    groups = [
        {**saved, "params": group["params"]}
        for saved, group in zip(own["groups"], current, strict=True)
    ]
    optimizer.load_state_dict({**own["extra"], "state": state, "param_groups": groups})


def _check_titles(name: str, parameters: list[Any], names: dict[int, str]) -> None:
    """What is saved of a parameter that no attached model has could not be given back to it: its
    numbers would be lost, and where it is a shard that is gathered at the moment, its name too."""
    if unnamed := [one for one in parameters if id(one) not in names]:
        shape = list(unnamed[0].shape)
        raise CannotSave(
            f"{name} steps {len(unnamed)} of {len(parameters)} parameters that no attached model "
            f"has (the first one's shape is {shape}): attach their module as well, or pass save= "
            "and load= functions"
        )


def _parameters(optimizer: Any) -> list[Any]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _titles(parameters: list[Any], names: dict[int, str]) -> list[str]:
    return [names.get(id(parameter), f"#{index}") for index, parameter in enumerate(parameters)]
