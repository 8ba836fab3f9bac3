"""The checkpoints there are, rebuilt from storage alone, and which of them to resume from.

The manifests say what exists, the verdict files beside them what became of it. A checkpoint counts
only when the newest one goes back to it: an attempt that resumed from further back has abandoned
what lay ahead, however high its step.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from holdfast_sidecar.checkpoints.durable_file import append_numbered
from holdfast_sidecar.checkpoints.manifest import (
    NAME,
    InvalidManifest,
    Manifest,
    NoManifest,
    claimed_job,
    is_void,
    read_manifest,
    verify_sizes,
)
from holdfast_sidecar.coordination.reports import Candidate, LedgerEntry

log = logging.getLogger(__name__)

PREFIX = "step-"


class NothingResumable(Exception):
    """There are checkpoints, and none can be resumed from: starting from nothing would throw them
    away. The text is one line for people."""


@dataclass(frozen=True)
class Kept:
    """A sealed checkpoint on storage. `failed_attempts`: attempts whose ranks couldn't load it."""

    path: Path
    manifest: Manifest
    failed_attempts: frozenset[int] = frozenset()
    is_poisoned: bool = False
    is_whole: bool = True
    """Every file is there, in its size."""

    @property
    def identifier(self) -> str:
        """Its name in the ledger."""
        return self.manifest.identifier

    @property
    def may_be_resumed(self) -> bool:
        """Worth trying, as far as can be told without reading the bytes."""
        return self.is_whole and not self.is_poisoned and self.manifest.is_finite

    def entry(self) -> LedgerEntry:
        """As it stands in the shared ledger."""
        return LedgerEntry(
            identifier=self.identifier,
            path=str(self.path),
            step=self.manifest.step,
            attempt=self.manifest.attempt,
            epoch=self.manifest.epoch,
            parent=self.manifest.parent,
            verdict="poisoned" if self.is_poisoned else "complete",
            size_bytes=self.manifest.size_bytes,
            world_size=self.manifest.world_size,
            at_unix_s=self.manifest.created_unix_s,
            load_failures=len(self.failed_attempts),
            requested_by=self.manifest.requested_by,
        )


def read_ledger(root: Path, job: str | None, key: bytes | None = None) -> list[Kept]:
    """Every sealed checkpoint of this job (None: of any) under `root`, newest first.

    Raises OSError when the storage is away: what can't be seen is not nothing.
    """
    kept = [found for directory in _directories(root) if (found := _read(directory, job, key))]
    return sorted(kept, key=lambda k: k.manifest.order, reverse=True)


def torn_directories(root: Path) -> list[Path]:
    """Directories in which a checkpoint was begun and never sealed (or is being written now)."""
    return [path for path in _directories(root) if is_void(path) or not (path / NAME).exists()]


def lineage(kept: Iterable[Kept]) -> list[Kept]:
    """The newest checkpoint and those it goes back to, newest first."""
    by_identifier = {k.identifier: k for k in kept}
    if not by_identifier:
        return []
    return list(_ancestry(_newest(by_identifier), by_identifier))


def candidates(kept: Iterable[Kept]) -> list[Candidate]:
    """What to try to resume from, best first. The ranks check the bytes."""
    return [
        Candidate(k.identifier, str(k.path), k.manifest.step)
        for k in lineage(kept)
        if k.may_be_resumed
    ]


def reasons_against(
    root: Path, kept: Iterable[Kept], job: str, key: bytes | None
) -> dict[str, str]:
    """Why each of this job's checkpoints can't be resumed from, by directory name. Raises OSError.

    One that is not believed counts as another job's only when it says so itself.
    """
    against = {k.path.name: _against(k) for k in kept}
    for directory in _directories(root):
        try:
            read_manifest(directory, key)
        except NoManifest:
            continue
        except InvalidManifest as error:
            if claimed_job(directory) in (job, None):
                against[directory.name] = str(error)
    return against


def _against(kept: Kept) -> str:
    if kept.is_poisoned:
        return "it could not be loaded"
    if not kept.is_whole:
        return "files are missing or cut off"
    if not kept.manifest.is_finite:
        return "its numbers are not finite"
    return "it is on an abandoned branch"


def note_failed_load(kept: Kept, attempt: int, limit: int) -> Kept:
    """Write down that this attempt's ranks couldn't load it; poisoned when `limit` attempts did.

    Raises OSError.
    """
    if attempt in kept.failed_attempts:
        return kept
    _append(kept.path, "unloaded", {"attempt": attempt})
    failed = kept.failed_attempts | {attempt}
    poisoned = kept.is_poisoned or len(failed) >= limit
    if poisoned and not kept.is_poisoned:
        reason = f"could not be loaded in attempts {sorted(failed)}"
        _append(kept.path, "poisoned", {"reason": reason})
        log.warning("checkpoint %s is poisoned: it %s", kept.path.name, reason)
    return Kept(kept.path, kept.manifest, failed, poisoned, kept.is_whole)


def _newest(by_identifier: dict[str, Kept]) -> Kept:
    """The last one in time. Attempts may count anew (state lost, storage kept), so a checkpoint
    that goes back to another one is later than that one, whatever their numbers say."""
    newest = max(by_identifier.values(), key=lambda k: k.manifest.order)
    seen = {newest.identifier}
    while True:
        children = [
            k
            for k in by_identifier.values()
            if k.manifest.parent == newest.identifier and k.identifier not in seen
        ]
        if not children:
            return newest
        newest = max(children, key=lambda k: k.manifest.order)
        seen.add(newest.identifier)


def _ancestry(newest: Kept, by_identifier: dict[str, Kept]) -> Iterator[Kept]:
    seen: set[str] = set()
    present: Kept | None = newest
    while present is not None and present.identifier not in seen:
        yield present
        seen.add(present.identifier)
        present = by_identifier.get(present.manifest.parent)


def _directories(root: Path) -> list[Path]:
    # Not glob: from Python 3.13 on it takes storage that is away for an empty directory.
    try:
        with os.scandir(root) as entries:
            names = [e.name for e in entries if e.name.startswith(PREFIX) and e.is_dir()]
    except FileNotFoundError:
        return []
    return [root / name for name in sorted(names)]


def _read(directory: Path, job: str | None, key: bytes | None) -> Kept | None:
    try:
        manifest = read_manifest(directory, key)
    except NoManifest:
        return None
    except InvalidManifest as error:
        log.warning("%s is not believed to be a checkpoint: %s", directory.name, error)
        return None
    if job is not None and manifest.job != job:
        return None
    return Kept(
        directory,
        manifest,
        failed_attempts=frozenset(_failed_attempts(directory)),
        is_poisoned=any(directory.glob("poisoned-*.json")),
        is_whole=not verify_sizes(directory, manifest),
    )


def _failed_attempts(directory: Path) -> Iterator[int]:
    for path in directory.glob("unloaded-*.json"):
        try:
            yield int(json.loads(path.read_bytes())["attempt"])
        except (OSError, ValueError, KeyError, TypeError):
            continue  # cut off by a crash while it was written: it will be said again


def _append(directory: Path, stem: str, verdict: dict[str, object]) -> None:
    append_numbered(directory, stem, json.dumps(verdict, sort_keys=True).encode())
