"""What must hold on a node before anything is started: its directories can be used and have room.

Each failure is one line (BadInput) that says how to mend it. Judging is apart from reading.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from holdfast.page import PAGE_SIZE
from holdfast.storage import Unusable, is_url, open_folder
from holdfast_sidecar.bad_input import BadInput
from holdfast_sidecar.places import passing_state_root, state_root, usual_state_root
from holdfast_sidecar.settings import Settings
from holdfast_sidecar.snapshots.room import is_small, least_reserve

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
    problem = room_problem(path, room, ranks, reserve_bytes)
    return problem or _probe_problem("shared-memory directory", path, "paths.shm_dir")


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
    """Why state can't be written; None when it can."""
    path = state_root(settings.paths)
    if path == passing_state_root() and (problem := _foreign_problem(path)):
        return problem
    return _directory_problem("state directory", path, "paths.state_dir")


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
    return found


def checkpoint_problem(settings: Settings) -> str | None:
    """Why checkpoints can't be written; None when they can, or none were asked for."""
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
    return _directory_problem("checkpoint path", path, "checkpoint.dir")


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


def _foreign_problem(path: Path) -> str | None:
    """Make it for us alone; why it can't be trusted, where somebody else was first. The temporary
    directory is everybody's."""
    try:
        path.mkdir(mode=0o700, exist_ok=True)
        facts = path.lstat()
    except OSError as error:
        return _cant_write("state directory", path, error.strerror, "paths.state_dir")
    is_ours = stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.getuid()
    if is_ours and not facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return None
    why = "it is not ours alone"
    return _cant_write("state directory", path, why, "paths.state_dir")


def _directory_problem(what: str, path: Path, setting: str) -> str | None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except FileNotFoundError:
        # What /proc and the like answer. Said of a directory yet to be made, it would be nonsense.
        there = next(parent for parent in path.parents if parent.exists())
        return _cant_write(what, path, f"{there} takes no new directory", setting)
    except OSError as error:
        return _cant_write(what, path, error.strerror, setting)
    return _probe_problem(what, path, setting)


def _probe_problem(what: str, path: Path, setting: str) -> str | None:
    """Write and remove a small file: permission bits alone say nothing about read-only mounts."""
    probe = path / f".holdfast-probe-{os.getpid()}-{secrets.token_hex(4)}"
    try:
        with probe.open("xb") as file:
            file.write(bytes(4096))
    except OSError as error:
        probe.unlink(missing_ok=True)
        return _cant_write(what, path, error.strerror, setting)
    probe.unlink(missing_ok=True)
    return None


def _cant_write(what: str, path: Path, why: str | None, setting: str) -> str:
    return f"can't write to the {what} {path}: {why}; choose another with {setting}"


def binary_size(size: int) -> str:
    """Bytes as MiB or GiB, three digits."""
    return f"{size / 2**20:.3g} MiB" if size < 1000 * 2**20 else f"{size / 2**30:.3g} GiB"
