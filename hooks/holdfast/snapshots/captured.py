"""A rank's state at one boundary: its live tensors, and everything else as text."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import torch

from holdfast.recording.placement import Placement
from holdfast.snapshots.layout import Source, sources
from holdfast.state.own_state import encode
from holdfast.state.registered import OwnState, Registered
from holdfast.state.saving import Mark, Savable, account, own_numbers, take_state


@dataclass(frozen=True)
class Captured:
    """State to be copied. The tensors are the live ones."""

    sources: list[Source]
    text: bytes
    """JSON: `own` (see own_state; its tensors are `own/<n>`), `numbers` (which n must be finite),
    `step`, `attempt`, `ancestors`, and `account`, as a checkpoint has it."""


def capture(savable: Savable, mark: Mark, place: Placement) -> Captured:
    """Ask every object for its state. Raises NotPlain, CannotLayOut, and what the objects raise."""
    shared, own = take_state(savable.registered, mark, place.world_size)
    plain, tensors = encode(own)
    state = {
        "step": mark.step,
        "attempt": mark.attempt,
        "ancestors": list(mark.ancestors),
        "own": plain,
        "numbers": _numbers(savable.registered, own, tensors),
        "account": account(savable, mark, place, None),
    }
    return Captured(sources(shared, tensors), json.dumps(state, separators=(",", ":")).encode())


def steady_places(registered: Registered, heard: Collection[Any]) -> set[int]:
    """Where tensors begin that change only when a registered optimizer steps, of those `heard`.

    Only torch's own optimizers are sure to tell before they do.
    """
    found: set[int] = set()
    for optimizer in registered.optimizers.values():
        is_torchs_own = type(optimizer).__module__.startswith("torch.optim.")
        if not is_torchs_own or optimizer not in heard:
            continue
        for group in optimizer.param_groups:
            found.update(_begins(parameter) for parameter in group["params"])
        for values in optimizer.state.values():
            tensors = (value for value in values.values() if isinstance(value, torch.Tensor))
            found.update(map(_begins, tensors))
    return found


def _begins(tensor: Any) -> int:
    local = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return int(local.data_ptr())


def _numbers(registered: Registered, own: OwnState, tensors: list[torch.Tensor]) -> list[int]:
    wanted = {id(tensor) for tensor in own_numbers(registered, own).values()}
    return [index for index, tensor in enumerate(tensors) if id(tensor) in wanted]
