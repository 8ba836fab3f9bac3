"""Incidents on this node's disk, so that their story outlives the server that held them.

The sidecar writes what the leader recorded, and of what was kept before whatever a leader that lost
it with its store can't tell; `explain` reads it where the job and its own server are gone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from holdfast.contract.own_directory import make_closed
from holdfast.contract.owned import owned_file
from holdfast.contract.removing import rmtree, unlink
from holdfast_sidecar.config.paths import NAME, Paths, find
from holdfast_sidecar.config.settings import EvidenceSettings
from holdfast_sidecar.incidents.aftermath import archive_of
from holdfast_sidecar.records.codec import decode, encode
from holdfast_sidecar.records.plan import WITHHELD, Incident, with_what_was_known

# What incidents leave on this node's disk, and how much of it stays: the newest of each kind.

ATTEMPTS_KEPT = 5
"""Stack dumps as the ranks wrote them. What matters of them is copied to the incident, so they
are needed only until then; a few more are for people who look for themselves."""

DAY_S = 86400.0


@dataclass(frozen=True)
class StoredIncident:
    """One incident's directory, with the archive beside it."""

    directory: Path
    detected_unix_s: float
    size_bytes: int
    is_only_seen: bool = False
    """Nothing was done about it."""


def remove_old_incidents(
    places: Paths,
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
    found: Sequence[StoredIncident], settings: EvidenceSettings, now_unix_s: float
) -> list[StoredIncident]:
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


def _look(directory: Path, detected_unix_s: float, is_only_seen: bool) -> StoredIncident:
    files = [path for path in (*directory.iterdir(), archive_of(directory)) if path.is_file()]
    size_bytes = sum(path.stat().st_size for path in files)
    return StoredIncident(directory, detected_unix_s, size_bytes, is_only_seen)


def _changed_unix_s(directory: Path) -> float:
    return directory.stat().st_mtime


def _directories(root: Path) -> list[Path]:
    try:
        return [path for path in root.iterdir() if path.is_dir() and not path.is_symlink()]
    except FileNotFoundError:
        return []


RECORD = "incident.json"


class IncidentStore:
    """Keeps each incident's newest record beside its evidence, and of old ones neither."""

    def __init__(self, places: Paths, settings: EvidenceSettings | None = None) -> None:
        self._places = places
        self._settings = settings or EvidenceSettings()
        self._kept: dict[str, str] = {}

    def keep(self, incidents: Mapping[str, str]) -> bool:
        """Write what changed (identifier -> record); answers whether anything did."""
        # The identifier comes off the wire and becomes a directory.
        changed = {
            identifier: text
            for identifier, text in incidents.items()
            if self._kept.get(identifier) != text and NAME.fullmatch(identifier)
        }
        for identifier, text in changed.items():
            directory = self._places.incident(identifier)
            make_closed(directory)
            temporary = directory / f"{RECORD}.new"
            temporary.write_text(self._with_kept(identifier, text))
            temporary.replace(directory / RECORD)
            self._kept[identifier] = text  # as told, so that the same is not written again
        if changed:
            remove_old_incidents(
                self._places, self._settings, _detected_unix_s, _was_only_seen, time.time()
            )
        return bool(changed)

    def recall(self, identifier: str) -> Incident | None:
        """What this node kept of an incident; None: nothing, or it can't be read."""
        # It comes off the wire, as above.
        is_name = NAME.fullmatch(identifier) is not None
        return _read(self._places.incident(identifier) / RECORD) if is_name else None

    def _with_kept(self, identifier: str, text: str) -> str:
        told, kept = decode(Incident, text), self.recall(identifier)
        if told is None or kept is None or (known := with_what_was_known(kept, told)) == told:
            return text
        return encode(known)


def read_incidents(state: Path) -> list[Incident]:
    """What the nodes of this machine kept of a job's incidents, oldest first."""
    furthest: dict[str, Incident] = {}
    for path in find(state, f"*/incidents/*/{RECORD}"):
        incident = _read(path)
        if incident is not None:
            known = furthest.get(incident.identifier, incident)
            furthest[incident.identifier] = max(known, incident, key=_how_far)
    return sorted(furthest.values(), key=lambda one: one.detected_unix_s)


def newest_job(root: Path) -> Path | None:
    """State directory of the job that has the newest incident below the root of all jobs."""
    newest: dict[float, Path] = {
        incidents[-1].detected_unix_s: state
        for state in find(root, "*/")
        if (incidents := read_incidents(state))
    }
    return newest[max(newest)] if newest else None


def _read(path: Path) -> Incident | None:
    try:
        return decode(Incident, path.read_text())
    except (OSError, UnicodeDecodeError):
        return None


def _detected_unix_s(directory: Path) -> float:
    """Of an incident whose record is not here yet: when its evidence was kept."""
    incident = _read(directory / RECORD)
    return directory.stat().st_mtime if incident is None else incident.detected_unix_s


def _was_only_seen(directory: Path) -> bool:
    """Whether nothing was done about it, so that no evidence of it is packed anywhere."""
    incident = _read(directory / RECORD)
    return incident is not None and incident.decided in WITHHELD and not incident.bundles


def _how_far(incident: Incident) -> tuple[float, float, float, bool]:
    """A node that was cut off for a while may have kept an earlier part of the story only."""
    return (
        incident.recovered_unix_s,
        incident.reopened_unix_s,
        incident.ended_unix_s,
        bool(incident.decided),
    )
