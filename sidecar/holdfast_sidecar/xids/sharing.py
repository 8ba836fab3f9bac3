"""One file for all sidecars that share a state directory: those of a machine, each with GPUs of its
own, and those of other machines where it lies in a shared home. Nobody drops what another
remembers. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from holdfast_sidecar.xids.history import KEPT_S, LOOK_BACK_S, MOST_KEPT, History, Mark
from holdfast_sidecar.xids.occurrence import Occurrence, is_same

MOST_SHARED = 4 * MOST_KEPT
"""What as many nodes keep at most that are in endless trouble at the same time; the newest stay."""


@dataclass(frozen=True)
class BootNote:
    """What is known of the GPUs of one boot of one machine, as in `History`."""

    sequence: int = -1
    cleared: Mapping[str, float] = field(default_factory=dict)
    marks: Mapping[str, Mark] = field(default_factory=dict)
    reloaded: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Shared:
    """What the file holds: occurrences by their times, and a note for each boot by its id."""

    occurrences: tuple[Occurrence, ...] = ()
    notes: Mapping[str, BootNote] = field(default_factory=dict)

    def history(self, boot: str) -> History:
        """All that happened, and what is known of the GPUs in this boot. Whose GPUs are meant is
        told apart once they have answered (`belonging`)."""
        note = self.notes.get(boot)
        if note is None:
            return History(self.occurrences)
        log_boot = boot if note.sequence >= 0 else ""
        return History(
            self.occurrences, note.cleared, note.marks, note.reloaded, log_boot, note.sequence
        )


def with_own(shared: Shared, own: History, boot: str, now_s: float) -> Shared:
    """What is to be kept after one sidecar, in this boot, has told what it knows."""
    theirs = (one for one in shared.occurrences if abs(now_s - one.last_s) < KEPT_S)
    both = sorted(
        [*_not_in(theirs, own.occurrences), *own.occurrences], key=lambda one: one.first_s
    )
    occurrences = tuple(both[-MOST_SHARED:])
    boots = {one.boot for one in occurrences} | {boot}
    notes = {name: note for name, note in shared.notes.items() if name in boots}
    notes[boot] = _joined(notes.get(boot, BootNote()), own, boot)
    return Shared(occurrences, notes)


def _not_in(theirs: Iterable[Occurrence], own: tuple[Occurrence, ...]) -> Iterator[Occurrence]:
    """Without what the sidecar knows as well, and what it had no more room for itself."""
    known: dict[tuple[str, int, int, str], list[Occurrence]] = defaultdict(list)
    for one in sorted(own, key=lambda one: one.first_s):
        known[_trouble(one)].append(one)
    starts = {trouble: [one.first_s for one in ones] for trouble, ones in known.items()}
    own_parts = {_part(one) for one in own}
    room_since_s = own[0].first_s if len(own) >= MOST_KEPT else float("-inf")
    for one in theirs:
        trouble = _trouble(one)
        begins = starts.get(trouble, [])
        first = bisect_left(begins, one.first_s - LOOK_BACK_S)
        last = bisect_right(begins, one.first_s + LOOK_BACK_S)
        if any(_is_one(one, mine) for mine in known.get(trouble, [])[first:last]):
            continue
        if one.first_s >= room_since_s or _part(one) not in own_parts:
            yield one


def _trouble(one: Occurrence) -> tuple[str, int, int, str]:
    return one.pci, one.number, one.sxid, one.boot


def _part(one: Occurrence) -> tuple[str, str, str]:
    return one.pci, one.uuid, one.boot


def _is_one(one: Occurrence, other: Occurrence) -> bool:
    """A switch has no UUID of its own: each sidecar knows it by one of the GPUs that it sees."""
    is_of_one = bool(one.sxid) or not one.uuid or not other.uuid or one.uuid == other.uuid
    return is_of_one and (is_same(one, other) or is_same(other, one))


def _joined(note: BootNote, own: History, boot: str) -> BootNote:
    """Whoever heard the kernel's log further wrote down what it had heard."""
    sequence = own.log_sequence if own.log_boot == boot else -1
    marks = dict(note.marks)
    for pci, mark in own.marks.items():
        if pci not in marks or mark.at_s >= marks[pci].at_s:
            marks[pci] = mark
    return BootNote(
        max(note.sequence, sequence),
        _newest(note.cleared, own.cleared),
        marks,
        _newest(note.reloaded, own.reloaded),
    )


def _newest(theirs: Mapping[str, float], own: Mapping[str, float]) -> dict[str, float]:
    return {pci: max(theirs.get(pci, at_s), at_s) for pci, at_s in {**theirs, **own}.items()}
