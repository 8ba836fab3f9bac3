"""What must hold on a node before anything is started: its directories can be used and have room.

Each failure is one line (BadInput) that says how to mend it. Judging is apart from reading.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from holdfast.own_directory import NotPrivate, open_private
from holdfast.owned import owned_file
from holdfast.page import PAGE_SIZE
from holdfast.removing import unlink
from holdfast.storage import Unusable, is_url, open_folder
from holdfast_sidecar.checkpoint.snapshot.slots import is_small, least_reserve
from holdfast_sidecar.config.paths import (
    FULL,
    TAKES_NOTHING,
    passing_state_root,
    shm_root,
    state_root,
    usual_state_root,
)
from holdfast_sidecar.config.settings import BadInput, Settings

_OWN_FILES = 4
"""Inodes beside the pages: three directories and the owner's lock."""


@dataclass(frozen=True)
class Room:
    """What a file system has left for us. `inodes` is None where it does not count them."""

    total_bytes: int
    free_bytes: int
    inodes: int | None


def check_node(settings: Settings, ranks: int) -> None:
    """Refuse a node on which `ranks` ranks could not run; leaves nothing but empty directories."""
    for problem in (
        shm_problem(settings, ranks, read_room),
        state_problem(settings),
        checkpoint_problem(settings),
        key_problem(settings.checkpoint.key_file),
    ):
        if problem:
            raise BadInput(problem)


def shm_problem(
    settings: Settings, ranks: int, read_room: Callable[[Path], Room | None]
) -> str | None:
    """Why the ranks' pages can't live in the shared-memory directory; None when they can."""
    path = Path(settings.paths.shm_dir)
    room = read_room(path)
    if room is None:
        return (
            f"{path} is no directory: mount a tmpfs there, or choose another shared-memory "
            f"directory with paths.shm_dir"
        )
    reserve_bytes = least_reserve(room.total_bytes, settings.paths.shm_reserve_bytes)
    problem = room_problem(path, room, ranks, reserve_bytes) or _foreign_problem(settings)
    return problem or _probe_problem("shared-memory directory", path, "paths.shm_dir")


def _foreign_problem(settings: Settings) -> str | None:
    """Why our own directory in shared memory can't be ours."""
    try:
        os.close(open_private(shm_root(settings.paths), 1))
    except FileNotFoundError:
        return None
    except NotPrivate as error:
        return f"{error}, or set paths.shm_dir"
    return None


def room_problem(path: Path, room: Room, ranks: int, reserve_bytes: int) -> str | None:
    """Why this much room is too little for the pages of so many ranks; None when it is enough."""
    pages_bytes = PAGE_SIZE * ranks
    if room.free_bytes < pages_bytes + reserve_bytes:
        return (
            f"{path} has {binary_size(room.free_bytes)} free of {binary_size(room.total_bytes)}, "
            f"but {ranks} rank{'s' * (ranks != 1)} need {binary_size(pages_bytes)} for pages and "
            f"{binary_size(reserve_bytes)} to spare: enlarge it (docker --shm-size=1g), or set "
            f"paths.shm_reserve_bytes lower or paths.shm_dir elsewhere"
        )
    if room.inodes is not None and room.inodes < ranks + _OWN_FILES:
        return f"{path} has only {room.inodes} free inodes: remove files, or set paths.shm_dir"
    return None


def state_problem(settings: Settings) -> str | None:
    """Why state can't lie where it is to; None when it can, or would but for a full disk."""
    path, obstacle = state_root(settings.paths), _state_obstacle(settings)
    if obstacle is None or obstacle.is_lack:
        return None
    return _cant_write("state directory", path, obstacle.why, "paths.state_dir")


def _state_obstacle(settings: Settings) -> _Obstacle | None:
    path = state_root(settings.paths)
    if path == passing_state_root():
        try:
            os.close(open_private(path, 1, make=True))
        except OSError as error:
            return _Obstacle.of(error)
    return _find_obstacle(path)


def losses(settings: Settings) -> dict[str, str]:
    """What this node lacks and does without, by which directory, each in one line with what would
    mend it."""
    found = {}
    path = Path(settings.paths.shm_dir)
    room = read_room(path)
    if room is not None and is_small(room.total_bytes, settings.paths.shm_reserve_bytes):
        found["shared memory"] = (
            f"{path} has {binary_size(room.total_bytes)} in all: snapshots leave half of it free, "
            f"so most jobs get none in memory, and DataLoader workers may run out of it "
            f"(docker --shm-size=1g, or a memory-backed volume at {path})"
        )
    if not settings.paths.state_dir and state_root(settings.paths) == passing_state_root():
        found["state"] = (
            f"{usual_state_root()} can't be written: state and evidence go to "
            f"{passing_state_root()}, and are lost with it (paths.state_dir)"
        )
    if (obstacle := _state_obstacle(settings)) is not None and obstacle.is_lack:
        found["state"] = (
            f"{state_root(settings.paths)} takes nothing ({obstacle.why}): logs, incidents and "
            f"evidence are not kept, and the job runs without (paths.state_dir)"
        )
    where = settings.checkpoint.dir
    obstacle = _find_obstacle(Path(where)) if where and not is_url(where) else None
    if obstacle is not None and obstacle.is_full:
        found["checkpoints"] = (
            f"{where} takes nothing ({obstacle.why}): nothing is saved there until there is room "
            f"(checkpoint.dir)"
        )
    return found


def checkpoint_problem(settings: Settings) -> str | None:
    """Why checkpoints can't be written; None when they can, or none were asked for, or there is
    just no room for them now: a job that comes back at night shall not end for that."""
    if not settings.checkpoint.dir:
        return None
    if is_url(settings.checkpoint.dir):
        return _url_problem(settings.checkpoint.dir)
    path = Path(settings.checkpoint.dir)
    if not path.parent.exists():
        # Made on the local disk under an unmounted path, it would hide what was saved before.
        return (
            f"{path.parent} does not exist, so checkpoint.dir {path} can't be made in it:"
            " mount the storage, or make that directory"
        )
    obstacle = _find_obstacle(path)
    if obstacle is None or obstacle.is_full:
        return None
    return _cant_write("checkpoint path", path, obstacle.why, "checkpoint.dir")


def key_problem(key_file: str) -> str | None:
    """Why manifests can't be sealed with the key; None when they can, or shall not be."""
    if not key_file:
        return None
    try:
        key = Path(key_file).expanduser().read_bytes().strip()
    except OSError as error:
        return f"can't read checkpoint.key_file {key_file}: {error.strerror}"
    return None if key else f"checkpoint.key_file {key_file} is empty: put a long secret into it"


def read_room(path: Path) -> Room | None:
    """Room left at a directory; None when there is no such directory."""
    if not path.is_dir():
        return None
    facts = os.statvfs(path)
    return Room(
        total_bytes=facts.f_blocks * facts.f_frsize,
        free_bytes=facts.f_bavail * facts.f_frsize,
        inodes=facts.f_favail if facts.f_files else None,
    )


def _url_problem(url: str) -> str | None:
    """Nothing is asked of the storage: one that is away shall not keep a job from starting."""
    try:
        open_folder(url)
    except Unusable as error:
        return f"checkpoint.dir: {error}"
    return None


def _probe_problem(what: str, path: Path, setting: str) -> str | None:
    obstacle = _probe(path)
    return None if obstacle is None else _cant_write(what, path, obstacle.why, setting)


@dataclass(frozen=True)
class _Obstacle:
    """Why a directory takes nothing. `is_lack`: only since its disk is full or read-only."""

    why: str
    is_lack: bool = False
    is_full: bool = False

    @classmethod
    def of(cls, error: OSError) -> _Obstacle:
        why = str(error) if isinstance(error, NotPrivate) else error.strerror or str(error)
        return cls(why, error.errno in TAKES_NOTHING, error.errno in FULL)


def _find_obstacle(path: Path) -> _Obstacle | None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except FileNotFoundError:
        # What /proc and the like answer. Said of a directory yet to be made, it would be nonsense.
        there = next(parent for parent in path.parents if parent.exists())
        return _Obstacle(f"{there} takes no new directory")
    except OSError as error:
        return _Obstacle.of(error)
    return _probe(path)


def _probe(path: Path) -> _Obstacle | None:
    """Write and remove a small file: permission bits alone say nothing about read-only mounts."""
    probe = path / f".holdfast-probe-{os.getpid()}-{secrets.token_hex(4)}"
    try:
        with probe.open("xb") as file:
            file.write(bytes(4096))
    except OSError as error:
        return _Obstacle.of(error)
    finally:
        with contextlib.suppress(OSError):  # where nothing can be written there is none
            unlink(owned_file(probe), missing_ok=True)
    return None


def _cant_write(what: str, path: Path, why: str, setting: str) -> str:
    return f"can't write to the {what} {path}: {why}; choose another with {setting}"


def binary_size(size: int) -> str:
    """Bytes as MiB or GiB, three digits."""
    return f"{size / 2**20:.3g} MiB" if size < 1000 * 2**20 else f"{size / 2**30:.3g} GiB"
