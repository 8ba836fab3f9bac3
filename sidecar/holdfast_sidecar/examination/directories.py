"""Shared memory, state and checkpoints: writable, and with room."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from holdfast.owned import owned_file
from holdfast.removing import rmdir
from holdfast.storage import absolute, is_url, open_folder, written_here
from holdfast_sidecar import startup
from holdfast_sidecar.checkpoint.ledger import untouched
from holdfast_sidecar.config.paths import state_root
from holdfast_sidecar.config.settings import Settings
from holdfast_sidecar.examination.check import FAIL, NOTE, OK, WARN, Check

_PROBE = "holdfast-doctor-was-here"

LITTLE_BYTES = 10 * 2**30
"""One checkpoint of a model worth the trouble: below this a warning costs less than a full disk."""


def check_directories(settings: Settings, ranks: int) -> list[Check]:
    """Look at every directory that a node with this many ranks will use; what has to be made for
    that is removed again."""
    used = [state_root(settings.paths)]
    if settings.checkpoint.dir and not is_url(settings.checkpoint.dir):
        used.append(Path(settings.checkpoint.dir))
    with _left_as_found(used):
        return _check_all(settings, ranks)


@contextlib.contextmanager
def _left_as_found(paths: Sequence[Path]) -> Iterator[None]:
    """Removes what was made of these and the directories above them, unless something is in it."""
    missing = {
        place for path in paths for place in (path, *path.parents) if not os.access(place, os.F_OK)
    }
    yield
    for place in sorted(missing, key=lambda place: len(place.parts), reverse=True):
        with contextlib.suppress(OSError):
            rmdir(owned_file(place))


def _check_all(settings: Settings, ranks: int) -> list[Check]:
    shm, state = Path(settings.paths.shm_dir), state_root(settings.paths)
    found = [
        _judge("shared memory", shm, startup.shm_problem(settings, ranks, startup.read_room)),
        _judge("state", state, startup.state_problem(settings)),
    ]
    losses = startup.losses(settings)
    found = [
        Check(check.what, WARN, losses[check.what])
        if check.verdict != FAIL and check.what in losses
        else check
        for check in [*found, _check_checkpoints(settings)]
    ]
    return [*found, *_check_left_alone(settings.checkpoint.dir)]


def _check_left_alone(root: str) -> list[Check]:
    """What else lies there: neither is it lost on us, nor is it ours to remove."""
    try:
        lines = untouched(absolute(root)).describe(root) if root else []
    except OSError:  # told by the check before
        return []
    return [Check("checkpoints", NOTE, line) for line in lines]


def _check_checkpoints(settings: Settings) -> Check:
    if not settings.checkpoint.dir:
        line = (
            "no checkpoint.dir is set: a restart goes on from snapshots in memory, or from nothing"
        )
        return Check("checkpoints", NOTE, line)
    if is_url(settings.checkpoint.dir):
        return _check_url(settings)
    path = Path(settings.checkpoint.dir)
    found = _judge("checkpoints", path, startup.checkpoint_problem(settings))
    room = startup.read_room(path)
    if found.verdict == OK and room is not None and room.free_bytes < LITTLE_BYTES:
        return Check("checkpoints", WARN, f"{found.line}: room for little more than one")
    if found.verdict == OK and _is_everybodys(path):
        line = f"{found.line}: every user may write there, and rename or remove what is yours"
        return Check("checkpoints", WARN, f"{line}: chmod o-w it, or set its sticky bit")
    return found


def _is_everybodys(path: Path) -> bool:
    """With the sticky bit only who made a name in it may remove it."""
    mode = path.stat().st_mode if path.is_dir() else 0
    return bool(mode & stat.S_IWOTH) and not mode & stat.S_ISVTX


def _check_url(settings: Settings) -> Check:
    """Write a file there and remove it: whoever may list a bucket may still not write to it."""
    url = settings.checkpoint.dir
    if problem := startup.checkpoint_problem(settings):
        return Check("checkpoints", FAIL, problem)
    folder = open_folder(url)
    try:
        folder.write(_PROBE, b"")
        folder.remove(_PROBE, written_here(folder, _PROBE))
    except OSError as error:
        return Check("checkpoints", FAIL, f"{url} can't be written: {error.strerror or error}")
    return Check("checkpoints", OK, url)


def _judge(what: str, path: Path, problem: str | None) -> Check:
    if problem:
        return Check(what, FAIL, problem)
    room = startup.read_room(path)
    free = "" if room is None else f", {startup.binary_size(room.free_bytes)} free"
    return Check(what, OK, f"{path}{free}")
