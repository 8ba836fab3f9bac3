"""The history of a day in a file that all sidecars here share, so that a restarted one, or the next
job's, knows what came before. Torn or foreign content reads as nothing."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from holdfast.own_directory import make_closed
from holdfast_sidecar.linux.files import read_if_any
from holdfast_sidecar.records.findings import Remedy
from holdfast_sidecar.xids.history import History, Mark
from holdfast_sidecar.xids.occurrence import Occurrence
from holdfast_sidecar.xids.sharing import MOST_SHARED, BootNote, Shared, with_own

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
        {str(pci): Mark(float(j), float(at_s)) for pci, (j, at_s) in value["marks"].items()},
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
