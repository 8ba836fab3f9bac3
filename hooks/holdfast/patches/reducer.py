"""What DDP's reducer sends below Python: which group it is, how many buckets, how many bytes.

Told once by DDP itself after it rebuilt its buckets, and counted for each backward pass that it
prepares; asking at every step would cost 10 us each. A communication hook that compresses sends
less than is counted here. How long a backward pass waits for it is `backward`'s.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from holdfast.guard import Guard
from holdfast.patches.grouped import Groups
from holdfast.patches.names import call_after
from holdfast.recording.group_slots import NO_SLOT
from holdfast.recording.recorder import Recorder

PREPARES = "prepare_for_backward"

REBUILT_AFTER = 3
"""Passes: DDP rebuilds its buckets in the second, and its logger tells of it from then on."""


@dataclass
class Sending:
    """What one reducer sends in a pass."""

    group: int
    """Identity of its process group."""
    tell: weakref.WeakMethod[Callable[[], Any]]
    """What DDP logs of itself, as long as there is one."""
    buckets: int = 0
    size: int = 0
    passes: int = 0

    def look(self) -> None:
        """Take what DDP tells now."""
        tell = self.tell()
        told = {} if tell is None else tell()
        sizes = told.get("rebuilt_bucket_sizes") or told.get("bucket_sizes") or ""
        self.buckets = len([size for size in str(sizes).split(",") if size.strip()])
        self.size = int(told.get("total_parameter_size_bytes") or 0)


def install(torch: Any, recorder: Recorder, guard: Guard, groups: Groups | None = None) -> None:
    """Hook where DDP objects are made, and where they prepare a backward pass."""
    parallel = getattr(torch.nn.parallel, "DistributedDataParallel", None)
    reducer = getattr(torch.distributed, "Reducer", None)
    if parallel is None or not hasattr(reducer, PREPARES):
        return
    watch = Watch(recorder, groups or Groups.of(recorder, torch))
    is_compiling = torch.compiler.is_compiling
    call_after(parallel, "__init__", is_compiling, guard.wrap("DDP is made", watch.made, None))
    call_after(reducer, PREPARES, is_compiling, guard.wrap("DDP prepares", watch.prepares, None))


class Watch:
    """Reducers by their identity, which lasts as long as their DDP."""

    def __init__(self, recorder: Recorder, groups: Groups) -> None:
        self._recorder = recorder
        self._slots = groups.slots
        self._sendings: dict[int, Sending] = {}

    def made(self, module: Any) -> None:
        """A model was wrapped."""
        group, reducer = module.process_group, getattr(module, "reducer", None)
        tell = getattr(module, "_get_ddp_logging_data", None)
        if tell is None or reducer is None:  # it has none when all of it is reduced by hooks
            return
        sending = Sending(id(group), weakref.WeakMethod(tell))
        sending.look()
        self._sendings[id(reducer)] = sending
        slot = self._slots.slot(group)
        if slot >= 0:
            self._recorder.reducer_slot = slot
            self._slots.count(slot, sending.size)  # it sent rank 0's parameters to all

    def prepares(self, reducer: Any) -> None:
        """The next backward pass ends in its collectives."""
        sending = self._sendings.get(id(reducer))
        if sending is None or threading.get_ident() != self._recorder.thread:
            return
        sending.passes += 1
        if sending.passes == REBUILT_AFTER:
            sending.look()
        slot = self._slots.known.get(sending.group, NO_SLOT)
        if slot >= 0:
            self._slots.count(slot, sending.size, sending.buckets)
