"""The ways to save that a loop calls by itself, each as its documentation has it at its best."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType

from bench.checkpoint import names

State = dict[str, torch.Tensor]


Rest = Future[Any]
"""What goes on behind the loop once it is let go."""


class Saver(Protocol):
    """A way to save."""

    def begin(self, state: State, place: Path) -> Rest:
        """Save into a place that does not exist yet; the loop is kept until this returns."""


class Copy:
    """The floor: memory to memory that was there before, one call."""

    def __init__(self) -> None:
        self._targets: list[torch.Tensor] = []

    def begin(self, state: State, place: Path) -> Rest:
        """Copy."""
        if not self._targets:
            self._targets = [torch.empty_like(tensor) for tensor in state.values()]
        torch._foreach_copy_(self._targets, list(state.values()))
        return _nothing_left()


class Blocking:
    """A save that is over when it returns."""

    def __init__(self, save: Callable[[State, Path], object]) -> None:
        self._save = save

    def begin(self, state: State, place: Path) -> Rest:
        """Save."""
        self._save(state, place)
        return _nothing_left()


class Async:
    """`async_save`, on a process group of its own: sharing the training's crashed both."""

    def __init__(self, kind: AsyncCheckpointerType, stager: DefaultStager | None = None) -> None:
        self._kind = kind
        self._stager = stager
        self._group: Any = dist.new_group(backend="gloo")

    def begin(self, state: State, place: Path) -> Rest:
        """Stage, and leave the rest to the thread or process."""
        future = dcp.async_save(
            dict(state),
            checkpoint_id=str(place),
            process_group=self._group,
            async_checkpointer_type=self._kind,
            async_stager=self._stager,
        )
        assert isinstance(future, Future)
        return future


def make(name: str) -> Saver:
    """The saver of this name. Collective."""
    # Pinned memory, streams and copies behind the loop's back are for accelerators.
    if name == names.DCP_THREAD:
        return Async(AsyncCheckpointerType.THREAD)
    if name == names.DCP_THREAD_CACHED:
        options = StagingOptions(False, False, False, False)
        return Async(AsyncCheckpointerType.THREAD, DefaultStager(options))
    if name == names.DCP_PROCESS:
        options = StagingOptions(False, use_shared_memory=True, use_async_staging=False)
        options.use_non_blocking_copy = False
        return Async(AsyncCheckpointerType.PROCESS, DefaultStager(options))
    if name == names.DCP_SYNC:
        group = dist.new_group(backend="gloo")
        return Blocking(
            lambda state, place: dcp.save(
                dict(state), checkpoint_id=str(place), process_group=group
            )
        )
    if name == names.TORCH_SAVE:
        return Blocking(_torch_save)
    return Copy()


def _nothing_left() -> Rest:
    rest: Rest = Future()
    rest.set_result(None)
    return rest


def remove(place: Path) -> None:
    """What was saved is of no use: only the time counts."""
    shutil.rmtree(place, ignore_errors=True)
    dist.barrier()


def _torch_save(state: State, place: Path) -> None:
    place.mkdir(exist_ok=True)
    torch.save(state, place / f"rank-{dist.get_rank()}.pt")
