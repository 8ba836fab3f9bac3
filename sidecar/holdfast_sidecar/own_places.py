"""A job's directories on this node, opened so that they can be nobody else's.

How that is made sure of is in `holdfast.own_directory`; here it is one line for people.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import stat
from pathlib import Path

from holdfast.own_directory import SHM_PARTS, NotPrivate, is_own_file, open_private
from holdfast.owned import owned_file, remove_own, stored_owner
from holdfast.removing import rmdir
from holdfast_sidecar.bad_input import BadInput
from holdfast_sidecar.places import Places

log = logging.getLogger(__name__)

FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
TAKES_NOTHING = FULL | {errno.EROFS}
"""What a disk answers that is full, over its quota or read-only: for minutes at least, and whatever
is written there."""

_STATE_PARTS = 2
"""Ours below the directory of all jobs' state: the job, the node."""

_MOST_BYTES = 1 << 20


def open_shm(directory: Path, *, make: bool = False) -> int:
    """A descriptor of a node's directory in shared memory. BadInput where it is not ours alone;
    FileNotFoundError where it, or the directory that it lies in, is not there.

    Ranks put nothing where others may look in (torch's server listens there), so with `make` that
    is said before they start.
    """
    folder = _open_shm(directory, SHM_PARTS, make)
    if make and os.fstat(folder).st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        os.close(folder)
        raise BadInput(f"others may look into {directory}: chmod 700 it, or set paths.shm_dir")
    return folder


def hold_shm(directory: Path) -> int:
    """Make a node's directory in shared memory that no launcher owns, and keep it from being swept
    as long as this descriptor is open. Raises as `open_shm`."""
    while True:
        folder = open_shm(directory, make=True)
        fcntl.flock(folder, fcntl.LOCK_SH)
        try:
            if os.path.samestat(os.fstat(folder), directory.lstat()):
                return folder
        except FileNotFoundError:
            pass  # it was swept before we had it
        os.close(folder)


def open_shm_of_job(directory: Path, *, make: bool = False) -> int:
    """The same of the directory above it, which is the job's."""
    return _open_shm(directory, SHM_PARTS - 1, make)


def _open_shm(directory: Path, parts: int, make: bool) -> int:
    try:
        return open_private(directory, parts, make=make)
    except NotPrivate as error:
        raise BadInput(f"{error}, or set paths.shm_dir") from None
    except FileNotFoundError:
        raise
    except OSError as error:
        raise BadInput(f"can't use {directory}: {error.strerror}") from None


def remove_node(directory: Path) -> bool:
    """Remove a node's directory in shared memory, and its job's and the user's where nothing else
    is in them. False, and all of it stays, where something in it is not ours."""
    try:
        job = open_private(directory.parent, SHM_PARTS - 1)
    except FileNotFoundError:
        return True
    except OSError as error:
        log.warning("%s stays: %s", directory, error)
        return False
    try:
        remove_own(job, directory.name)
    except OSError as error:
        log.warning("%s stays: %s", directory, error)
        return False
    finally:
        os.close(job)
    for parent in (directory.parent, directory.parent.parent):
        with contextlib.suppress(OSError):  # other nodes or jobs are there
            rmdir(owned_file(parent))
    return True


def make_state(places: Places) -> None:
    """Make a node's state directory, and its job's, for this user alone; what is there keeps its
    mode. BadInput where one of them is somebody else's, or others may write into it. What a full
    disk or a quota has no room for is not kept: nobody's ranks are ended for it."""
    root = places.state.parent.parent
    try:
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.close(_open_state(places.state, _STATE_PARTS, make=True))
    except NotPrivate as error:
        raise BadInput(f"{error}, or set paths.state_dir") from None
    except OSError as error:
        log.warning("can't make %s, nothing is kept there: %s", places.state, error.strerror)


def read_own_file(path: Path) -> bytes | None:
    """What is in a small file of a job's state directory; None where it, or that directory, is
    another user's or may be written by others. Raises OSError where it can't be read."""
    try:
        folder = _open_state(path.parent, 1)
    except NotPrivate:
        return None
    try:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with os.fdopen(os.open(path.name, flags, dir_fd=folder), "rb") as stream:
            facts = os.fstat(stream.fileno())
            if not is_own_file(facts, os.fstat(folder).st_uid):
                return None
            return stream.read(_MOST_BYTES)
    finally:
        os.close(folder)


def _open_state(path: Path, own_parts: int, *, make: bool = False) -> int:
    """State may lie on a file system that stores our files as another user's (NFS that squashes
    root)."""
    try:
        return open_private(path, own_parts, make=make)
    except NotPrivate:
        owner = stored_owner(path.parents[own_parts - 1])
        if owner == os.geteuid():
            raise
        return open_private(path, own_parts, make=make, owner=owner)
