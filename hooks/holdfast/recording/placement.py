"""Which rank of how many this process is, and the ways to the others that Holdfast uses."""

from __future__ import annotations

import functools
import os
import resource
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch.distributed as dist

from holdfast.contract import environment
from holdfast.state.agreement import Agreement

DESCRIPTORS_BESIDES = 64
"""What a rank may open while its group connects: loaders' pipes, files, the store's connections."""

CONNECT_TIMEOUT_S = 60.0
"""For ranks that have all arrived; torch's own is 30 minutes, in which training stands still."""

CONNECT_RANK_S = 0.05
"""Besides, for each of them: a rank of thousands connects to all others through one store."""

WRITE_TIMEOUT_S = 1800.0
"""Unless the sidecar's settings say otherwise: half a terabyte at 300 MB a second."""


@dataclass(frozen=True)
class Placement:
    """A rank's place. `store` and `group` are None while it is alone."""

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    local_world_size: int = 1
    store: Any = None
    is_joined: bool = True
    """False: there are other ranks, but torch.distributed is not initialised (yet)."""
    write_timeout_s: float = WRITE_TIMEOUT_S
    """For how long ranks that save together wait for each other."""
    _failures: list[str] = field(default_factory=list, init=False, repr=False, compare=False)
    """Why the group could not be made, once that was tried."""

    @property
    def board(self) -> Any:
        """Where ranks leave word for each other; one that is alone gets an empty one each time."""
        return self.store if self.store is not None else dist.HashStore()

    @functools.cached_property
    def group(self) -> Any:
        """A gloo group of all ranks, Holdfast's own: saving on the training group while training
        used it crashed both (gloo matches messages by order).

        It takes a socket for each other rank, so it is made when it is first asked for. Collective.
        Raises ConnectionError when ranks don't reach each other; it is not to be asked for again.
        """
        if self.store is None:
            return None
        timeout_s = min(CONNECT_TIMEOUT_S + CONNECT_RANK_S * self.world_size, self.write_timeout_s)
        try:
            group = dist.new_group(backend="gloo", timeout=timedelta(seconds=timeout_s))
        except RuntimeError as error:
            self._failures.append(
                f"the ranks could not connect by gloo within {timeout_s:.0f} s ({error}): open the "
                "ports between the nodes, or name the interface in GLOO_SOCKET_IFNAME"
            )
            raise ConnectionError(self._failures[-1]) from error
        # What they do together takes as long as the slowest of them writes.
        timeout = timedelta(seconds=self.write_timeout_s)
        dist.distributed_c10d._set_pg_timeout(timeout, group)
        return group

    def group_problem(self) -> str:
        """Why `group` can't be made here; empty when it can, or is there already."""
        if self._failures:
            return self._failures[-1]
        if self.store is None or "group" in vars(self):
            return ""
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        left = limit - len(list(Path("/proc/self/fd").iterdir()))
        needed = self.world_size + DESCRIPTORS_BESIDES
        if limit == resource.RLIM_INFINITY or left >= needed:
            return ""
        return (
            f"{self.world_size} ranks that save together need {needed} file descriptors each, "
            f"{left} are left: raise `ulimit -n` ({limit})"
        )

    def agreement(self, topic: str) -> Agreement:
        """A question to all ranks; one that is alone agrees with itself."""
        return Agreement(self.board, topic, self.world_size)


def read_placement(env: Mapping[str, str] = os.environ) -> Placement:
    """Where this process stands."""
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
        write_timeout_s=read_write_timeout_s(env),
    )


def read_write_timeout_s(env: Mapping[str, str]) -> float:
    """How long ranks that began to write wait for each other."""
    return float(env.get(environment.CHECKPOINT_WRITE_TIMEOUT, "") or WRITE_TIMEOUT_S)


def _number(env: Mapping[str, str], name: str, default: int) -> int:
    value = env.get(name, "")
    return int(value) if value.isdecimal() else default
