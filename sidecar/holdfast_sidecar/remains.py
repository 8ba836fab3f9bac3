"""What incidents leave on this node's disk, and how much of it stays: the newest of each kind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from holdfast.owned import owned_file
from holdfast.removing import rmtree, unlink
from holdfast_sidecar.config.paths import Places
from holdfast_sidecar.config.settings import EvidenceSettings
from holdfast_sidecar.evidence.archive import archive_of

ATTEMPTS_KEPT = 5
"""Stack dumps as the ranks wrote them. What matters of them is copied to the incident, so they
are needed only until then; a few more are for people who look for themselves."""

DAY_S = 86400.0


@dataclass(frozen=True)
class Remains:
    """One incident's directory, with the archive beside it."""

    directory: Path
    detected_unix_s: float
    size_bytes: int
    is_only_seen: bool = False
    """Nothing was done about it."""


def remove_old_remains(
    places: Places,
    settings: EvidenceSettings,
    detected_unix_s: Callable[[Path], float],
    was_only_seen: Callable[[Path], bool],
    now_unix_s: float,
) -> None:
    """Remove all but the newest incidents and attempts. Raises OSError.

    `detected_unix_s`: when the incident that left this directory was detected;
    `was_only_seen`: whether nothing was done about it.
    """
    found = [
        _look(path, detected_unix_s(path), was_only_seen(path))
        for path in _directories(places.incidents)
    ]
    for old in superfluous(found, settings, now_unix_s):
        rmtree(owned_file(old.directory))
        unlink(owned_file(archive_of(old.directory)), missing_ok=True)
    attempts = sorted(_directories(places.attempts_evidence), key=_changed_unix_s, reverse=True)
    for attempt in attempts[ATTEMPTS_KEPT:]:
        rmtree(owned_file(attempt))


def superfluous(
    found: Sequence[Remains], settings: EvidenceSettings, now_unix_s: float
) -> list[Remains]:
    """Those that may not stay; the newest always may.

    What was only seen is counted for itself and after the others: a job that lives with its spikes
    has many of them, and nothing but their records.
    """
    newest_first = sorted(found, key=lambda one: one.detected_unix_s, reverse=True)
    acted_on = [one for one in newest_first if not one.is_only_seen]
    only_seen = [one for one in newest_first if one.is_only_seen]
    oldest_unix_s = now_unix_s - settings.keep_days * DAY_S if settings.keep_days else 0.0
    gone, total_bytes = [], 0
    for number, one in (*enumerate(acted_on), *enumerate(only_seen)):
        total_bytes += one.size_bytes
        is_old = one.detected_unix_s < oldest_unix_s
        if number and (number >= settings.keep or is_old or total_bytes > settings.keep_bytes):
            gone.append(one)
    return gone


def _look(directory: Path, detected_unix_s: float, is_only_seen: bool) -> Remains:
    files = [path for path in (*directory.iterdir(), archive_of(directory)) if path.is_file()]
    size_bytes = sum(path.stat().st_size for path in files)
    return Remains(directory, detected_unix_s, size_bytes, is_only_seen)


def _changed_unix_s(directory: Path) -> float:
    return directory.stat().st_mtime


def _directories(root: Path) -> list[Path]:
    try:
        return [path for path in root.iterdir() if path.is_dir() and not path.is_symlink()]
    except FileNotFoundError:
        return []
