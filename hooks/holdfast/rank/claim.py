"""Claiming this rank's page: one living process per page, owned by a file lock rather than a pid.

The page's directory was made by the launcher. Nothing here waits for anybody.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import stat
import time
from dataclasses import dataclass

from holdfast.contract import page
from holdfast.contract.own_directory import open_node
from holdfast.contract.owned import owned_file
from holdfast.contract.removing import unlink
from holdfast.rank.descriptors import map_file, move_out_of_the_way

RACES = 100
"""Each lost race means that someone else replaced the page; more in a row is no race."""

GLANCES = 5
GLANCE_S = 0.01
"""Who asks whether a page is free holds its lock for an instant. That is no living owner."""


@dataclass(frozen=True)
class ClaimedPage:
    """A page that is ours while this process lives."""

    memory: mmap.mmap
    descriptor: int

    def let_go(self) -> None:
        """Unmap and close it; the mapping keeps a descriptor of its own, so both must go."""
        self.memory.close()
        os.close(self.descriptor)


def claim(
    directory: str, identity: page.Identity, *, replaces_dead: bool = False
) -> ClaimedPage | None:
    """Claim the page of this attempt and local rank.

    None when a living process holds it, or when a dead one has stepped in it: its records stay.
    With `replaces_dead` that one's page gives way, and those of all who died with it.
    OSError when the directory is no safe place or has no room.
    """
    folder = _open_directory(directory)
    try:
        name = page.page_name(identity.attempt, identity.local_rank)
        for _ in range(RACES):
            try:
                occupied = os.open(name, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
            except FileNotFoundError:
                try:
                    return _publish(folder, name, identity, replaces=False)
                except FileExistsError:
                    continue
            try:
                if not _lock(occupied):
                    return None
                if not _is_still(occupied, name, folder):
                    continue
                if _was_used(occupied):
                    if not replaces_dead:
                        return None
                    _remove_dead(folder, name)
                return _publish(folder, name, identity, replaces=True)
            finally:
                os.close(occupied)
        raise OSError(f"the page {name} keeps changing hands")
    finally:
        os.close(folder)


def _open_directory(directory: str) -> int:
    folder = open_node(directory)
    if stat.S_IMODE(os.fstat(folder).st_mode) & 0o077:
        os.close(folder)
        raise PermissionError(f"{directory} must be this user's own and closed to others (0700)")
    return folder


def _lock(descriptor: int) -> bool:
    for _ in range(GLANCES):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            time.sleep(GLANCE_S)
    return False


def _is_still(descriptor: int, name: str, folder: int) -> bool:
    try:
        named = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return os.path.samestat(os.fstat(descriptor), named)


def _was_used(descriptor: int) -> bool:
    data = os.pread(descriptor, page.PAGE_SIZE, 0)
    if len(data) < page.PAGE_SIZE:
        return False
    words = page.parse_words(data)
    return bool(words[page.Word.PUBLISHED] or words[page.Word.STEP])


def _remove_dead(folder: int, own: str) -> None:
    """Remove the pages of all ranks but `own` that no living process holds."""
    for name in os.listdir(folder):
        if not name.endswith(".page") or name.startswith(".") or name == own:
            continue
        try:
            descriptor = os.open(name, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
        except FileNotFoundError:
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_still(descriptor, name, folder):
                unlink(owned_file(name, folder))
        except BlockingIOError:
            continue
        finally:
            os.close(descriptor)


def _publish(folder: int, name: str, identity: page.Identity, *, replaces: bool) -> ClaimedPage:
    """Build the page under another name and put it in place, whole and locked.

    Without `replaces` a page that appeared meanwhile wins (FileExistsError).
    """
    draft = f".{name}.{identity.pid}-{identity.start_ticks}"
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = move_out_of_the_way(os.open(draft, flags, 0o600, dir_fd=folder))
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # A hole in the mapping would be SIGBUS in the middle of training, which no guard catches.
        os.posix_fallocate(descriptor, 0, page.PAGE_SIZE)
        memory = map_file(descriptor, page.PAGE_SIZE)
        zone = page.pack_identity(identity)
        memory[: len(zone)] = zone
        if replaces:
            os.replace(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
            return ClaimedPage(memory, descriptor)
        os.link(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        os.close(descriptor)
        unlink(owned_file(draft, folder))
        raise
    unlink(owned_file(draft, folder))
    return ClaimedPage(memory, descriptor)
