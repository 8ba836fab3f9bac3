"""The history of a day in a file of the machine's, so that a restarted sidecar, or the next job's,
knows what came before. Torn or foreign content reads as nothing."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from holdfast_sidecar.kernel_files import read_if_any
from holdfast_sidecar.remedy import Remedy
from holdfast_sidecar.xids.history import MOST_KEPT, History, Mark
from holdfast_sidecar.xids.occurrence import Occurrence

VERSION = 1

MOST_BYTES = 1 << 20
"""A file of our own holds a quarter of that at most."""

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def read_boot(path: Path = BOOT_ID) -> str:
    """Which boot of the machine this is; empty where the kernel does not say."""
    return read_if_any(path).strip()


def read_history(path: Path) -> History:
    """What the file holds; nothing where there is none, or it is not ours."""
    try:
        value = json.loads(read_if_any(path, MOST_BYTES) or "{}")
        return parse_history(value)
    except (ValueError, TypeError, KeyError, AttributeError):
        return History()


def write_history(path: Path, history: History) -> None:
    """Replace it whole. Raises OSError."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = path.with_suffix(f".{os.getpid()}.new")
    temporary.write_text(json.dumps(as_json(history)))
    temporary.replace(path)


def as_json(history: History) -> dict[str, Any]:
    """As plain values."""
    return {
        "version": VERSION,
        "cleared": dict(history.cleared),
        "marks": {pci: [mark.joules, mark.at_s] for pci, mark in history.marks.items()},
        "reloaded": dict(history.reloaded),
        "log_boot": history.log_boot,
        "log_sequence": history.log_sequence,
        "occurrences": [_plain(one) for one in history.occurrences],
    }


def parse_history(value: Mapping[str, Any]) -> History:
    """Out of plain values; an occurrence that makes no sense is left out. Raises ValueError,
    TypeError, KeyError or AttributeError where the whole makes none."""
    if value.get("version") != VERSION:
        return History()
    cleared = {str(pci): float(at_s) for pci, at_s in value["cleared"].items()}
    # As below, the next two are not in a file of an older sidecar's.
    marks = {str(pci): Mark(float(j), float(at_s)) for pci, (j, at_s) in _part(value, "marks")}
    reloaded = {str(pci): float(at_s) for pci, at_s in _part(value, "reloaded")}
    occurrences = tuple(_occurrences(value["occurrences"][-MOST_KEPT:]))
    log_boot, sequence = str(value["log_boot"]), int(value["log_sequence"])
    return History(occurrences, cleared, marks, reloaded, log_boot, sequence)


def _part(value: Mapping[str, Any], name: str) -> Iterable[tuple[str, Any]]:
    found: Mapping[str, Any] = value.get(name, {})
    return found.items()


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
    spared_s = value.get("spared_s")  # as `uuid`, not in a file of an older sidecar's
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
        uuid=str(value.get("uuid", "")),
        spared_s=None if spared_s is None else float(spared_s),
    )
