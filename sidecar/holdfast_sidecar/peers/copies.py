"""The copies of other nodes' snapshots that lie on this node: two files for each rank."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from holdfast.owned import owned_file
from holdfast.removing import unlink
from holdfast.snapshot_file import COPIES_DIRECTORY, slot_name
from holdfast_sidecar.peers.sealed_slots import SlotFile, read_slots, sealed_slots
from holdfast_sidecar.peers.slot_copy import clear
from holdfast_sidecar.policy.replication import Copy, copy_to_overwrite

FILES = (0, 1)


@dataclass(frozen=True)
class Copies:
    """Looks at the files anew each time: they are the truth, also for a sidecar just started."""

    shm: Path

    @property
    def directory(self) -> Path:
        """Where they lie."""
        return self.shm / COPIES_DIRECTORY

    def of(self, rank: int) -> dict[int, Copy | None]:
        """File -> what is sealed in it."""
        found: dict[int, Copy | None] = dict.fromkeys(FILES)
        for slot in sealed_slots(self.directory, rank):
            if slot.index in found:
                found[slot.index] = _copy(slot)
        return found

    def newest(self, rank: int, attempt: int | None = None) -> int:
        """Newest step (of this attempt, if one is named); -1: none."""
        copies = (copy for copy in self.of(rank).values() if copy is not None)
        return max((c.step for c in copies if attempt in (None, c.attempt)), default=-1)

    def has(self, rank: int, copy: Copy) -> bool:
        """Whether this one is here already."""
        return copy in self.of(rank).values()

    def next_path(
        self, rank: int, attempt: int, through: int, *, settled: int = -1, may_be_newest: bool
    ) -> Path | None:
        """The file that the next copy goes into; None: none may be overwritten now."""
        file = copy_to_overwrite(
            self.of(rank), attempt, through, settled=settled, may_be_newest=may_be_newest
        )
        return None if file is None else self.directory / slot_name(rank, file)

    def steps(self) -> dict[str, list[int]]:
        """Rank -> sealed steps, newest first, as a report has it."""
        found: dict[str, list[int]] = {}
        for slot in sealed_slots(self.directory):
            found.setdefault(str(slot.header.rank), []).append(slot.header.step)
        return found

    def clear(self, is_abandoned: Callable[[Copy], bool]) -> list[int]:
        """Tear those that nobody may resume from; answers the steps that are gone."""
        gone = []
        for slot in sealed_slots(self.directory):
            copy = _copy(slot)
            if is_abandoned(copy) and clear(slot.path, copy.attempt, copy.step):
                gone.append(copy.step)
        return gone

    def has_others_than(self, attempt: int) -> bool:
        """Whether some copy is not of this attempt (a later one is of an earlier run)."""
        return any(slot.header.attempt != attempt for slot in sealed_slots(self.directory))

    def remove(self, rank: int) -> None:
        """Give back the memory of a rank's copies; who reads one keeps it."""
        for slot in read_slots(self.directory, rank):
            unlink(owned_file(slot.path), missing_ok=True)


def _copy(slot: SlotFile) -> Copy:
    return Copy(slot.header.attempt, slot.header.step)
