"""Makes room for the snapshots of a node's ranks: plans the memory, then arranges the slots.

Takes as long as the kernel needs to hand out the memory, so it runs beside the loop, in a thread.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from holdfast.snapshot_file import COPIES_DIRECTORY, OWN_DIRECTORY
from holdfast_sidecar.policy.replication import Margin, MemoryPlan, Room, Wish, plan_memory
from holdfast_sidecar.snapshots.slot_files import (
    NAMED,
    SlotBusy,
    SlotFile,
    arrange_slots,
    read_slots,
    remove_slots,
)
from holdfast_sidecar.snapshots.slot_memory import SlotMemory

log = logging.getLogger(__name__)

NICENESS = 10


class Rooms(Protocol):
    """Says how much memory is free."""

    def read(self, held_bytes: int) -> Room:
        """The room there is, counting what snapshots hold already. Raises OSError."""

    def read_margin(self) -> Margin | None:
        """What is left to the job; None where that isn't known. Raises OSError."""


@dataclass(frozen=True)
class Needs:
    """What the ranks of a node asked for, and what the settings wish for them."""

    job: str
    wants: Mapping[int, int]
    """Rank -> bytes of one slot."""
    wish: Wish
    existing: int = field(default=-1, compare=False)
    """The newest step that all ranks are known to have; -1: none is known."""
    given_up: int = 0
    """Rungs of the ladder that the job has taken for itself in this attempt."""

    def are_met(self, slots: list[SlotFile], plan: MemoryPlan) -> bool:
        """Whether the slots are those that were planned, no more and no fewer."""
        found = [(one.rank, one.slot) for one in slots]
        planned = [(rank, slot) for rank in sorted(self.wants) for slot in range(plan.slots)]
        return found == planned and all(
            one.header.file_size >= self.wants[one.rank] for one in slots
        )


def allocate(shm: Path, needs: Needs, rooms: Rooms, memory: SlotMemory = NAMED) -> MemoryPlan:
    """Make the slots; what was free a moment ago and is not any more means one rung down.

    Slots of ranks that this node no longer has are removed. Raises SlotBusy, or OSError when not
    even the room can be read.
    """
    directory = shm / OWN_DIRECTORY
    if needs.given_up:
        remove_copies(shm)
    remove_slots([one for one in read_slots(directory) if one.rank not in needs.wants])
    failures = 0
    while True:
        room = rooms.read(held_bytes(shm))
        plan = plan_memory(list(needs.wants.values()), room, needs.wish, failures, needs.given_up)
        try:
            for rank, size in sorted(needs.wants.items()):
                arrange_slots(directory, rank, size, plan.slots, needs.existing, needs.job, memory)
        except OSError as error:
            if plan.slots == 0:
                raise
            log.warning("no room for %d slots per rank after all: %s", plan.slots, error)
            failures = plan.rung + 1
        else:
            memory.give_back()
            return plan


def remove_copies(shm: Path) -> None:
    """Give back what copies of other nodes' snapshots take, but for those that are being written:
    copies are the first rung. Their leader is told, by the report, to bring no more."""
    for one in read_slots(shm / COPIES_DIRECTORY):
        with contextlib.suppress(SlotBusy):
            remove_slots([one])


def held_bytes(shm: Path) -> int:
    """What the slots and copies of this node take."""
    return sum(
        one.header.file_size
        for name in (OWN_DIRECTORY, COPIES_DIRECTORY)
        for one in read_slots(shm / name)
    )


@dataclass
class Allocation:
    """One allocation at a time, in a thread. What it was for is kept with what came of it."""

    shm: Path
    rooms: Rooms
    memory: SlotMemory = NAMED
    needs: Needs | None = None
    """What was last allocated for."""
    plan: MemoryPlan | None = None
    """What came of it; None while nothing has."""
    _asked: Needs | None = None
    _future: Future[MemoryPlan] | None = None
    _thread: ThreadPoolExecutor = field(default_factory=lambda: _one_thread())

    @property
    def is_busy(self) -> bool:
        """Whether one is under way."""
        return self._future is not None

    def begin(self, needs: Needs) -> None:
        """Start one."""
        self._asked = needs
        try:
            self._future = self._thread.submit(allocate, self.shm, needs, self.rooms, self.memory)
        except RuntimeError:  # no thread is left; what was submitted would run once there is one
            self._thread = _one_thread()

    def conclude(self) -> bool:
        """Take in what came of it, if it has ended; whether it just has. Raises what it raised."""
        if self._future is None or not self._future.done():
            return False
        ended, self._future = self._future, None
        self.plan = ended.result()
        self.needs = self._asked
        return True

    def wait(self) -> None:
        """Until the one under way has ended."""
        if self._future is not None:
            self._future.exception()


def _one_thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, "slots", initializer=_be_nice)


def _be_nice() -> None:
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
