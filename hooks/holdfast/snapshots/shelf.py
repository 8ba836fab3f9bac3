"""This rank's slots in the node's shared memory, and what is known of each."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from holdfast.snapshot_file import OWN_DIRECTORY, slot_name
from holdfast.snapshots import keeping
from holdfast.snapshots.keeping import Known
from holdfast.snapshots.slot import Slot, Writing, open_slot

log = logging.getLogger(__name__)


@dataclass
class Shelf:
    """The slots of one rank. `prepare` is called for each, in a thread of its own, and makes it
    ready; `drop` before one is unmapped."""

    folder: Path
    rank: int
    slots: list[Slot | None] = field(default_factory=list)
    known: Known = field(default_factory=lambda: Known(sealed=()))
    prepare: Callable[[Slot], None] = Slot.say_ready
    drop: Callable[[Slot], None] = lambda slot: None

    def look(self, count: int, size: int) -> bool:
        """See which slots there are; whether all are there, large enough for `size`.

        A few looks at names each time: the sidecar may have made other files.
        """
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
        for number in keeping.free_slots(self.known):
            slot = self.slots[number]
            writing = slot.begin() if slot is not None else None
            if slot is not None and writing is not None:
                self.known = keeping.overwriting(self.known, number)
                return slot, writing
        return None

    def sealed(self, step: int) -> None:
        """What was begun is whole."""
        assert self.known.busy is not None
        self.known = keeping.sealed(self.known, self.known.busy, step)

    def given_up(self) -> None:
        """What was begun failed."""
        self.known = keeping.given_up(self.known)

    def adopt(self, attempt: int, step: int) -> None:
        """What was resumed from exists; all other slots are to be overwritten."""
        self.known = Known(sealed=tuple(self._adopted(slot, attempt, step) for slot in self.slots))
        if step in self.known.sealed:
            self.known = keeping.exists(self.known, step)

    def _adopted(self, slot: Slot | None, attempt: int, step: int) -> int | None:
        header = slot.header() if slot is not None else None
        if header is None or (header.attempt, header.sealed_step) != (attempt, step):
            return None
        return step

    def _open(self, number: int) -> Slot | None:
        slot = open_slot(self.folder / slot_name(self.rank, number))
        if slot is not None:
            threading.Thread(
                target=self.prepare, args=(slot,), name="holdfast-prepare", daemon=True
            ).start()
        return slot

    def _replace(self, number: int, slot: Slot | None) -> None:
        self.slots[number] = slot
        sealed = (*self.known.sealed[:number], None, *self.known.sealed[number + 1 :])
        self.known = replace(self.known, sealed=sealed)

    def _drop(self, slot: Slot | None) -> None:
        if slot is not None:
            self.drop(slot)


def found_slots(folder: Path, rank: int) -> Iterator[Slot]:
    """Every slot of this rank that is there, whoever made it."""
    for path in sorted(folder.glob(slot_name(rank, 0)[:-1] + "*")):
        slot = open_slot(path)
        if slot is not None:
            yield slot


def own_folder(page_dir: str) -> Path:
    """Where the slots of this node's ranks lie."""
    return Path(page_dir) / OWN_DIRECTORY
