"""Who owns a node of a job on this machine: a locked file, never a pid.

Makes the private directories, finds a free node name, and sweeps what nobody owns any more.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import socket
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from holdfast.page import DEVICES_SUFFIX, GROUPS_SUFFIX, LAYOUT_SUFFIX, SOCKET_SUFFIX
from holdfast.snapshot_file import COPIES_DIRECTORY, OWN_DIRECTORY
from holdfast_sidecar.bad_input import BadInput
from holdfast_sidecar.listing import find
from holdfast_sidecar.places import LONGEST_NAME, NAME, Places, places
from holdfast_sidecar.settings import PathSettings

EXPIRED_S = 3600.0
"""Pages of a run that was killed are kept this long: its evidence, should anyone look."""

GLANCES = 5
GLANCE_S = 0.01
"""Who sweeps, or asks whether a node is owned, holds its lock for an instant. That is no owner."""

MOST_NODES = 1000
"""Names tried for a node before something else must be wrong."""


@dataclass(frozen=True)
class Ownership:
    """A node of a job, owned by this process until `release`."""

    node: str
    places: Places
    lock_fd: int

    def release(self) -> None:
        """Remove what lies in shared memory and give the node up."""
        shutil.rmtree(self.places.shm, ignore_errors=True)
        for folder in (self.places.shm.parent, self.places.shm.parent.parent):
            with contextlib.suppress(OSError):  # other nodes or jobs are there
                folder.rmdir()
        os.close(self.lock_fd)


def own_node(settings: PathSettings, job: str, name: str | None) -> Ownership:
    """Own the node called `name`, or the first free one named after this host."""
    for node in [name] if name else host_names():
        where = places(settings, job, node)
        lock_fd = _lock(where)
        if lock_fd is not None:
            where.state.mkdir(parents=True, exist_ok=True, mode=0o700)
            return Ownership(node, where, lock_fd)
    raise BadInput(
        f"a launcher of job {job!r} runs on node {name or socket.gethostname()!r} of this machine "
        "already: choose another --job or --node, or end that one first"
    )


def host_names() -> Iterator[str]:
    """The host's name, then host~2, host~3, … for more nodes of one job on one machine."""
    host = as_name(socket.gethostname())
    yield host
    for number in range(2, MOST_NODES):
        ending = f"~{number}"
        yield f"{host[: LONGEST_NAME - len(ending)]}{ending}"


def as_name(text: str) -> str:
    """The text as the name of a job or node: whatever a name may not hold becomes a dash."""
    name = re.sub(r"[^A-Za-z0-9._~-]", "-", text).lstrip("-._~")[:LONGEST_NAME]
    return name if NAME.fullmatch(name) else "node"


def checked(option: str, name: str) -> str:
    """The name of a job or node that was given; BadInput says why it can't be one."""
    if NAME.fullmatch(name):
        return name
    if re.search(r"[^A-Za-z0-9._~-]", name) or not name:
        raise BadInput(f"{option} {name}: use letters, digits and . _ ~ - only")
    if name[0] in "._~-":
        raise BadInput(f"{option} {name}: begin it with a letter or digit")
    raise BadInput(f"{option} {name}: use at most {LONGEST_NAME} characters, this is {len(name)}")


def sweep(settings: PathSettings, now_unix_s: float | None = None) -> None:
    """Remove what earlier runs of this user left in shared memory, if unowned and expired."""
    now = time.time() if now_unix_s is None else now_unix_s
    root = Path(settings.shm_dir) / f"holdfast-{os.getuid()}"
    for node in find(root, "*/*"):
        with _unowned(node / "owner.lock") as is_free, contextlib.suppress(FileNotFoundError):
            if is_free and now - _newest(node) > EXPIRED_S:
                shutil.rmtree(node, ignore_errors=True)
                with contextlib.suppress(OSError):
                    node.parent.rmdir()


def sweep_pages(shm: Path, now_unix_s: float | None = None) -> None:
    """Remove expired pages of earlier runs from a node's directory that we own."""
    now = time.time() if now_unix_s is None else now_unix_s
    for page in shm.glob("*.page"):
        with contextlib.suppress(FileNotFoundError):
            if not is_owned(page) and now - page.stat().st_mtime > EXPIRED_S:
                for suffix in (SOCKET_SUFFIX, GROUPS_SUFFIX, LAYOUT_SUFFIX, DEVICES_SUFFIX):
                    page.with_suffix(suffix).unlink(missing_ok=True)
                page.unlink()


def sweep_slots(shm: Path) -> None:
    """Remove what an earlier launcher's ranks left in a node's directory that we own.

    Slots belong to a launcher: to a later one they would be another run's state. One that is still
    read or written is left, and goes with the directory.
    """
    for folder in (OWN_DIRECTORY, COPIES_DIRECTORY):
        for slot in (shm / folder).glob("*"):
            with contextlib.suppress(FileNotFoundError):
                if not is_owned(slot):
                    slot.unlink()


def is_owned(path: Path) -> bool:
    """Whether a living process holds the lock of this file."""
    with _unowned(path) as is_free:
        return not is_free


@contextlib.contextmanager
def _unowned(path: Path) -> Iterator[bool]:
    """Whether nobody holds this file's lock; meanwhile nobody else can take it."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        yield True
        return
    try:
        yield _try_lock(handle)
    finally:
        os.close(handle)


def _try_lock(handle: int, glances: int = 1) -> bool:
    for glance in range(glances):
        if glance:
            time.sleep(GLANCE_S)
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
    return False


def _lock(where: Places) -> int | None:
    """Lock the node's directory; None when somebody holds it."""
    ours = (where.shm.parent.parent, where.shm.parent, where.shm)
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    while True:
        try:
            for folder in ours:
                _make_private(folder)
            handle = os.open(where.lock, flags, 0o600)
        except FileNotFoundError:
            if not (root := ours[0].parent).is_dir():
                raise BadInput(f"{root} is no directory: set paths.shm_dir to one") from None
            continue  # whoever had it, or another node or job, is just removing the directory
        if not _try_lock(handle, GLANCES):
            os.close(handle)
            return None
        with contextlib.suppress(FileNotFoundError):
            if os.fstat(handle).st_ino == where.lock.stat().st_ino:
                return handle
        os.close(handle)  # the file we locked was removed meanwhile: it protects nothing


def _make_private(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        pass
    except FileNotFoundError:
        raise
    except OSError as error:
        raise BadInput(f"can't make {folder}: {error.strerror}") from None
    facts = folder.lstat()
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.getuid():
        raise BadInput(f"{folder} is not a directory of yours: remove it, or set paths.shm_dir")
    if facts.st_mode & 0o077:
        folder.chmod(0o700)


def _newest(folder: Path) -> float:
    times = [folder.stat().st_mtime]
    for path in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):
            times.append(path.stat().st_mtime)
    return max(times)
