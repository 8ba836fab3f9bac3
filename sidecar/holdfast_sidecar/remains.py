"""What incidents leave on this node's disk, and how much of it stays: the newest of each kind."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from holdfast_sidecar.places import Places

INCIDENTS_KEPT = 20
"""Pages, records and stacks of an eight-GPU node are some 3 MB: a job that fails for weeks leaves
60 MB, and the story of its newest days."""

ATTEMPTS_KEPT = 5
"""Stack dumps as the ranks wrote them. What matters of them is copied to the incident, so they
are needed only until then; a few more are for people who look for themselves."""


def remove_old_remains(places: Places, detected_unix_s: Callable[[Path], float]) -> None:
    """Remove all but the newest incidents and attempts. Raises OSError.

    `detected_unix_s`: when the incident that left this directory was detected.
    """
    _remove_older(places.incidents, INCIDENTS_KEPT, detected_unix_s)
    _remove_older(places.attempts_evidence, ATTEMPTS_KEPT, _changed_unix_s)


def _changed_unix_s(directory: Path) -> float:
    return directory.stat().st_mtime


def _remove_older(root: Path, keep: int, newness: Callable[[Path], float]) -> None:
    try:
        found = [path for path in root.iterdir() if path.is_dir() and not path.is_symlink()]
    except FileNotFoundError:
        return
    for old in sorted(found, key=newness, reverse=True)[keep:]:
        shutil.rmtree(old)
