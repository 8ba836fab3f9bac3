"""What must hold on a node before anything is started: its directories can be used and have room.

Each failure is one line (BadInput) that says how to mend it. Judging is apart from reading.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from holdfast.page import PAGE_SIZE
from holdfast.storage import Unusable, is_url, open_folder
from holdfast_sidecar.bad_input import BadInput
from holdfast_sidecar.places import state_root
from holdfast_sidecar.settings import Settings

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
    problem = room_problem(path, room, ranks, settings.paths.shm_reserve_bytes)
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
    return _directory_problem("state directory", state_root(settings.paths), "paths.state_dir")


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
