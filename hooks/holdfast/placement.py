"""Which rank of how many this process is, and the ways to the others that Holdfast uses."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch.distributed as dist

from holdfast import environment
from holdfast.agreement import Agreement


@dataclass(frozen=True)
class Placement:
    """A rank's place. `store` and `group` are None while it is alone."""

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    local_world_size: int = 1
    store: Any = None
    group: Any = None
    is_joined: bool = True
    """False: there are other ranks, but torch.distributed is not initialised (yet)."""

    @property
    def board(self) -> Any:
        """Where ranks leave word for each other; one that is alone gets an empty one each time."""
        return self.store if self.store is not None else dist.HashStore()

    def agreement(self, topic: str) -> Agreement:
        """A question to all ranks; one that is alone agrees with itself."""
        return Agreement(self.board, topic, self.world_size)


def read_placement(env: Mapping[str, str] = os.environ) -> Placement:
    """Where this process stands. Collective once torch.distributed is initialised.

    The group is gloo and Holdfast's own: saving on the training group while training used it
    crashed both (gloo matches messages by order).
    """
    local_rank, local_world_size = (
        _number(env, "LOCAL_RANK", 0),
        _number(env, "LOCAL_WORLD_SIZE", 1),
    )
    if not (dist.is_available() and dist.is_initialized()):
        return Placement(local_rank=local_rank, is_joined=_number(env, "WORLD_SIZE", 1) <= 1)
    rank, world_size = dist.get_rank(), dist.get_world_size()
    if world_size == 1:
        return Placement(local_rank=local_rank)
    # The attempt is part of the name: plain torchrun keeps one store across restarts.
    attempt = f"{env.get(environment.ATTEMPT, '0')}.{env.get('TORCHELASTIC_RESTART_COUNT', '0')}"
    # A connection of its own, so that nothing of torch's waits while we look.
    store = dist.distributed_c10d._get_default_store()
    if hasattr(store, "clone"):
        store = store.clone()
    return Placement(
        rank=rank,
        world_size=world_size,
        local_rank=local_rank,
        local_world_size=min(local_world_size, world_size),
        store=dist.PrefixStore(f"holdfast/{attempt}", store),
        group=dist.new_group(backend="gloo"),
    )


def _number(env: Mapping[str, str], name: str, default: int) -> int:
    value = env.get(name, "")
    return int(value) if value.isdecimal() else default
