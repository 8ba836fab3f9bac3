"""The one way to open a directory that is ours: part by part, by descriptors.

The path that the user named is resolved once; links of root or of this user may stand in it. Below
it no link is followed, and every part must belong to this user and be closed to others. Imported at
a rank's start, so nothing of weight is imported here.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MOST_LINKS = 40
"""As many as the kernel follows."""

SHM_PARTS = 3
"""Ours below the directory for shared memory: holdfast-<uid>, the job, the node."""

_AFTER_FILES = 1 << 30
_NAMED = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
OWN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_EVERY_UID = 2**32 - 1


class NotPrivate(PermissionError):
    """Something that is to be ours is another user's, a link, or open to others: one line."""

    def __str__(self) -> str:
        return str(self.args[-1])


def open_private(
    path: str | os.PathLike[str], own_parts: int, *, make: bool = False, owner: int | None = None
) -> int:
    """A descriptor of the directory at `path`, of which the last `own_parts` parts are ours.

    `make`: makes those that are missing, for this user alone; what is there keeps its mode, and is
    refused where others may write into it. `owner`: as whom this user's files are stored there,
    where that is another one. Raises NotPrivate; FileNotFoundError where it is not there; OSError.
    """
    parts = os.path.abspath(path).split("/")[1:]  # noqa: PTH100 - pathlib costs at a rank's start
    count = min(own_parts, len(parts))
    named, own = parts[: len(parts) - count], parts[len(parts) - count :]
    folder = _open_named(named)
    for number, part in enumerate(own, 1):
        where = "/" + "/".join([*named, *own[:number]])
        try:
            inner = _open_own(folder, part, where, make, os.geteuid() if owner is None else owner)
        finally:
            os.close(folder)
        folder = inner
    return folder


def open_node(path: str | os.PathLike[str]) -> int:
    """A descriptor of the directory in which a node's pages lie; as `open_private`.

    Where a launcher of ours or `attach` chose it, three parts of it are ours; a directory that
    somebody else gives to one process (a benchmark) is ours itself.
    """
    parts = os.path.abspath(path).split("/")  # noqa: PTH100
    is_usual = parts[-SHM_PARTS:][0].startswith("holdfast-")
    return open_private(path, SHM_PARTS if is_usual else 1)


def open_own_part(folder: int, name: str) -> int:
    """A descriptor of a directory of ours inside an open one; raises NotPrivate, OSError."""
    return _open_own(folder, name, name, make=False, owner=os.geteuid())


def make_closed(path: str | os.PathLike[str]) -> None:
    """Make a directory and those above it that are missing, all of them for this user alone, which
    neither pathlib nor os.makedirs does of those above. Raises OSError."""
    here, missing = os.path.abspath(path), []  # noqa: PTH100
    while not os.path.isdir(here):  # noqa: PTH112
        missing.append(here)
        here = os.path.dirname(here)  # noqa: PTH120
    for each in reversed(missing):
        try:
            os.mkdir(each, 0o700)  # noqa: PTH102
        except FileExistsError:
            if not os.path.isdir(each):  # noqa: PTH112
                raise


def find_own(
    folder: int, owner: int, turn: Callable[[str], int | None], inside: str = ""
) -> Iterator[tuple[int, str]]:
    """Everything below an open directory, by name: when its turn to be removed is, directories
    after what is in them.

    `turn` says it of files. Raises NotPrivate at a file of which it knows none, and at whatever
    belongs to another owner. No link is followed.
    """
    with os.scandir(folder) as entries:
        found = list(entries)
    for entry in found:
        name = inside + entry.name
        try:
            facts = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            continue
        if facts.st_uid != owner:
            raise NotPrivate(f"{name} belongs to another user")
        if entry.is_dir(follow_symlinks=False):
            below = os.open(entry.name, OWN, dir_fd=folder)
            try:
                yield from find_own(below, owner, turn, f"{name}/")
            finally:
                os.close(below)
            yield _AFTER_FILES - name.count("/"), name
        elif (when := turn(name)) is None:
            raise NotPrivate(f"{name} was not written by Holdfast")
        else:
            yield when, name


def is_own_file(facts: os.stat_result, owner: int) -> bool:
    """Whether it is a plain file of this owner's that nobody else may write."""
    is_closed = not facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return stat.S_ISREG(facts.st_mode) and facts.st_uid == owner and is_closed


def _open_named(parts: list[str]) -> int:
    """The directory that the user named, each link in its path looked at once."""
    folder = os.open("/", _NAMED)
    left, links = parts[::-1], 0
    try:
        while left:
            part = left.pop()
            if not part:
                continue
            try:
                inner = os.open(part, _NAMED, dir_fd=folder)
            except NotADirectoryError:
                links += 1
                if links > MOST_LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), part) from None
                target = _read_link(folder, part, "/" + "/".join(parts))
                left += target.split("/")[::-1]
                inner = os.open("/", _NAMED) if target.startswith("/") else os.dup(folder)
            os.close(folder)
            folder = inner
    except BaseException:
        os.close(folder)
        raise
    return folder


def _read_link(folder: int, part: str, path: str) -> str:
    facts = os.stat(part, dir_fd=folder, follow_symlinks=False)
    if not stat.S_ISLNK(facts.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
    if facts.st_uid not in (0, os.geteuid()) and not _is_unmapped(facts.st_uid):
        raise NotPrivate(
            f"{part} in {path} is a link of another user (uid {facts.st_uid}): name the directory"
            " that it leads to"
        )
    return os.readlink(part, dir_fd=folder)


def _is_unmapped(uid: int) -> bool:
    """Whether this is how a user namespace shows all users that it doesn't map, the machine's root
    among them (containers without root)."""
    try:
        with open("/proc/sys/kernel/overflowuid") as stream:  # noqa: PTH123
            overflow = int(stream.read())
        with open("/proc/self/uid_map") as stream:  # noqa: PTH123
            mapped = sum(int(line.split()[2]) for line in stream)
    except (OSError, ValueError, IndexError):
        return False
    return uid == overflow and mapped < _EVERY_UID


def _open_own(folder: int, part: str, where: str, make: bool, owner: int) -> int:
    strange = f"{where} is not a directory of yours: remove it"
    if make:
        # Whatever the umask: these bits it can only take away.
        with contextlib.suppress(FileExistsError):
            os.mkdir(part, 0o700, dir_fd=folder)
    try:
        inner = os.open(part, OWN, dir_fd=folder)
    except OSError as error:
        if error.errno in (errno.ENOTDIR, errno.ELOOP, errno.EACCES):
            raise NotPrivate(strange) from None
        raise
    facts = os.fstat(inner)
    try:
        if facts.st_uid != owner:
            raise NotPrivate(strange)
        if facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise NotPrivate(f"others may write into {where}: chmod 700 it")
    except BaseException:
        os.close(inner)
        raise
    return inner
