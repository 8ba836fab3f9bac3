"""This rank's slots in the node's shared memory, and what is known of each."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from holdfast.contract.snapshot_file import OWN_DIRECTORY, slot_name
from holdfast.snapshots import retention
from holdfast.snapshots.retention import Known
from holdfast.snapshots.slot import Slot, Writing, open_slot

Name = tuple[int, int]
"""Attempt and step of a snapshot: a later attempt's is the newer one, whatever its step."""


@dataclass
class SlotPool:
    """The slots of one rank. `prepare` is called for each, in a thread of its own, and makes it
    ready; `drop` before one is unmapped."""

    folder: Path
    rank: int
    attempt: int
    resumed: Name | None = None
    """Attempt and step of the snapshot that this attempt went on from; kept until a newer exists.
    What else lies there from earlier attempts may be overwritten."""
    slots: list[Slot | None] = field(default_factory=list)
    known: Known = field(default_factory=lambda: Known(sealed=()))
    prepare: Callable[[Slot], None] = Slot.say_ready
    drop: Callable[[Slot], None] = lambda slot: None

    def look(self, count: int, size: int) -> bool:
        """See which slots there are; whether all are there, large enough for `size`.

        A few looks at names each time: the sidecar may have made other files, with what lay in the
        old ones or without.
        """
        count = count or len(slot_paths(self.folder, self.rank))
        if count != len(self.slots):
            for slot in self.slots[count:]:
                self._drop(slot)
            self.slots = [*self.slots[:count], *[None] * (count - len(self.slots))]
            kept = (*self.known.sealed[:count], *[None] * (count - len(self.known.sealed)))
            self.known = replace(self.known, sealed=kept)
        for number, slot in enumerate(self.slots):
            if slot is None or not slot.is_in_place():
                self._drop(slot)
                self._replace(number, self._open(number))
        return count > 0 and all(slot is not None and slot.size >= size for slot in self.slots)

    @property
    def is_ready(self) -> bool:
        """Whether all slots can be copied into at full speed."""
        return all(slot is not None and slot.is_ready for slot in self.slots)

    def await_ready(self) -> None:
        """Wait until they can."""
        for slot in self.slots:
            if slot is not None:
                slot.await_ready()

    def begin(self) -> tuple[Slot, Writing] | None:
        """Begin to write the best slot that is free; None when none is."""
        for number in retention.free_slots(self.known):
            slot = self.slots[number]
            writing = slot.begin() if slot is not None else None
            if slot is not None and writing is not None:
                self.known = retention.overwriting(self.known, number)
                return slot, writing
        return None

    def sealed(self, step: int) -> None:
        """What was begun is whole."""
        assert self.known.busy is not None
        self.known = retention.sealed(self.known, self.known.busy, step)

    def given_up(self) -> None:
        """What was begun failed."""
        self.known = retention.given_up(self.known)

    def _open(self, number: int) -> Slot | None:
        slot = open_slot(self.folder / slot_name(self.rank, number))
        if slot is None:
            return None
        thread = threading.Thread(
            target=self.prepare, args=(slot,), name="holdfast-prepare", daemon=True
        )
        try:
            thread.start()
        except RuntimeError:  # none is left (`pids.max`): as if it were not there yet
            return None
        return slot

    def _replace(self, number: int, slot: Slot | None) -> None:
        self.slots[number] = slot
        step = self._step_in(slot)
        self.known = retention.found(self.known, number, step)
        if self.resumed is not None and step == self.resumed[1]:
            self.known = retention.exists(self.known, step)

    def _step_in(self, slot: Slot | None) -> int | None:
        """The step that is whole in it, if this attempt can still go back to it."""
        header = slot.header() if slot is not None else None
        if header is None or header.sealed_step is None:
            return None
        name = (header.attempt, header.sealed_step)
        return header.sealed_step if name == self.resumed or name[0] == self.attempt else None

    def _drop(self, slot: Slot | None) -> None:
        if slot is not None:
            self.drop(slot)


def slot_paths(folder: Path, rank: int) -> list[Path]:
    """Every slot of this rank that is there, whoever made it."""
    return sorted(folder.glob(slot_name(rank, 0)[:-1] + "*"))


def found_slots(folder: Path, rank: int) -> Iterator[Slot]:
    """Those that can be read."""
    for path in slot_paths(folder, rank):
        slot = open_slot(path)
        if slot is not None:
            yield slot


def own_folder(page_dir: str) -> Path:
    """Where the slots of this node's ranks lie."""
    return Path(page_dir) / OWN_DIRECTORY
