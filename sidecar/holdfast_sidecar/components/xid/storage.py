"""The history of a day in a file that all sidecars here share, so that a restarted one, or the next
job's, knows what came before. Torn or foreign content reads as nothing.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast.contract.own_directory import make_closed
from holdfast_sidecar.components.xid.history import (
    KEPT_S,
    LOOK_BACK_S,
    MOST_KEPT,
    EnergyMark,
    History,
    Occurrence,
    is_same,
)
from holdfast_sidecar.linux.files import read_if_any
from holdfast_sidecar.records.findings import Remedy

# One file for all sidecars that share a state directory: those of a machine, each with GPUs of its
# own, and those of other machines where it lies in a shared home. Nobody drops what another
# remembers. Pure.

MOST_SHARED = 4 * MOST_KEPT
"""What as many nodes keep at most that are in endless trouble at the same time; the newest stay."""


@dataclass(frozen=True)
class BootNote:
    """What is known of the GPUs of one boot of one machine, as in `History`."""

    sequence: int = -1
    cleared: Mapping[str, float] = field(default_factory=dict)
    marks: Mapping[str, EnergyMark] = field(default_factory=dict)
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


VERSION = 2

MOST_BYTES = 4 << 20
"""A file of our own holds a quarter of that at most."""

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def read_boot(path: Path = BOOT_ID) -> str:
    """Which boot of the machine this is; empty where the kernel does not say."""
    return read_if_any(path).strip()


def read_history(path: Path, boot: str) -> History:
    """What the file holds, as seen in this boot; nothing where there is none, or it is not ours."""
    return read_shared(path).history(boot)


def read_shared(path: Path) -> Shared:
    """All of it."""
    try:
        return parse_shared(json.loads(read_if_any(path, MOST_BYTES) or "{}"))
    except (ValueError, TypeError, KeyError, AttributeError):
        return Shared()


def write_history(path: Path, own: History, boot: str, now_s: float) -> None:
    """Put what one sidecar knows to what the others keep there. Raises OSError; BlockingIOError
    where another is at it just now."""
    make_closed(path.parent)
    with _alone(path.with_suffix(".lock")):
        temporary = path.with_suffix(f".{os.getpid()}.new")
        temporary.write_text(json.dumps(as_json(with_own(read_shared(path), own, boot, now_s))))
        temporary.replace(path)


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Nobody waits for the lock: whoever holds it may have been stopped."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise
        except OSError:
            pass  # a file system without locks: what is read just before is better than nothing
        yield
    finally:
        os.close(descriptor)


def as_json(shared: Shared) -> dict[str, Any]:
    """As plain values."""
    return {
        "version": VERSION,
        "boots": {
            boot: {
                "sequence": note.sequence,
                "cleared": dict(note.cleared),
                "marks": {pci: [mark.joules, mark.at_s] for pci, mark in note.marks.items()},
                "reloaded": dict(note.reloaded),
            }
            for boot, note in shared.notes.items()
        },
        "occurrences": [_plain(one) for one in shared.occurrences],
    }


def parse_shared(value: Mapping[str, Any]) -> Shared:
    """Out of plain values; an occurrence that makes no sense is left out. Raises ValueError,
    TypeError, KeyError or AttributeError where the whole makes none."""
    if value.get("version") != VERSION:
        return Shared()
    notes = {str(boot): _note(note) for boot, note in value["boots"].items()}
    return Shared(tuple(_occurrences(value["occurrences"][-MOST_SHARED:])), notes)


def _note(value: Mapping[str, Any]) -> BootNote:
    return BootNote(
        int(value["sequence"]),
        {str(pci): float(at_s) for pci, at_s in value["cleared"].items()},
        {str(pci): EnergyMark(float(j), float(at_s)) for pci, (j, at_s) in value["marks"].items()},
        {str(pci): float(at_s) for pci, at_s in value["reloaded"].items()},
    )


def _plain(one: Occurrence) -> dict[str, Any]:
    return {
        **vars(one),
        "sources": sorted(one.sources),
        "asked": None if one.asked is None else one.asked.value,
    }


def _occurrences(values: list[dict[str, Any]]) -> Iterator[Occurrence]:
    for value in values:
        try:
            yield _occurrence(value)
        except (ValueError, TypeError, KeyError, AttributeError):
            continue


def _occurrence(value: Mapping[str, Any]) -> Occurrence:
    action, asked, fatal = value["recovery_action"], value["asked"], value["is_fatal"]
    spared_s = value["spared_s"]
    return Occurrence(
        pci=str(value["pci"]),
        number=int(value["number"]),
        sxid=int(value["sxid"]),
        first_s=float(value["first_s"]),
        last_s=float(value["last_s"]),
        boot=str(value["boot"]),
        text=str(value["text"]),
        sources=frozenset(map(str, value["sources"])),
        is_fatal=None if fatal is None else bool(fatal),
        place=str(value["place"]),
        recovery_action=None if action is None else int(action),
        episode=int(value["episode"]),
        asked=None if asked is None else Remedy(asked),
        is_suppressed=bool(value["is_suppressed"]),
        uuid=str(value["uuid"]),
        spared_s=None if spared_s is None else float(spared_s),
    )
