"""What a demonstration that was killed left behind: the next one removes it.

Each holds a lock in its directories for as long as it lives; the kernel lets go of it with the
process, however that ends. What has no lock is not ours to judge.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

PREFIX = "holdfast-demo-"
"""How the directories' names begin, in shared memory and in the temporary directory."""

LOCK = "alive.lock"


@contextlib.contextmanager
def claimed(directory: Path) -> Iterator[None]:
    """Ours until the end of the block. The lock is there only once it is held."""
    new = directory / f"{LOCK}.new"
    descriptor = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        new.rename(directory / LOCK)
        yield
    finally:
        os.close(descriptor)


def remove_leftovers(parent: Path) -> list[Path]:
    """Remove this user's directories here whose demonstration lives no more; answers which."""
    found = (path for path in parent.glob(f"{PREFIX}*") if _is_own(path))
    return [path for path in found if _removed(path)]


def _is_own(path: Path) -> bool:
    try:
        return not path.is_symlink() and path.lstat().st_uid == os.getuid()
    except OSError:
        return False


def _removed(directory: Path) -> bool:
    try:
        descriptor = os.open(directory / LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(directory, ignore_errors=True)
    except OSError:
        return False  # it lives, or locks are unknown there
    finally:
        os.close(descriptor)
    return not directory.exists()
