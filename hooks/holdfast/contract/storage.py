"""A folder of files on a local path or any URL that fsspec has a driver for.

All trouble is OSError: FileNotFoundError where a file isn't there, another where the storage does
not say. Nothing is ever there half: a file appears, whole, when its writing has ended well.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Protocol

from holdfast.contract.own_directory import NotPrivate, find_own
from holdfast.contract.owned import remove_found, stored_owner
from holdfast.contract.permit import DirectoryEntry, Licence, NotPermitted, Permit, Stored
from holdfast.contract.removing import rmdir, unlink

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.\-:]*://")
_UNFINISHED = ".writing"
_UNFINISHED_NAME = re.compile(r"\.(.+)\.[0-9a-f]{8}\.writing")
_OF_ONE_NODE = re.compile(r"(local|memory)://|.*::", re.IGNORECASE)
"""URLs of what other nodes may not have, or of a cache in front of what they have."""

LAST = 1 << 31
"""Turn of the file that says whose a folder is: after all others and the directories in it."""

_MOST_KEPT = 1 << 16
"""Bytes of such a file."""

NO_FILE = "that is no regular file"

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_CANNOT_SYNC = frozenset({errno.EINVAL, errno.ENOTSUP, errno.ENOSYS})


class Unusable(OSError):
    """This URL can't be used here; says what to install or to change."""


class NotOurs(OSError):
    """A folder holds what Holdfast did not make, so nothing in it is changed."""


class Folder(Protocol):
    """Files by name, relative to the folder, with `/` between parts."""

    url: str
    """The path or URL as text; nothing secret is in it."""

    created: set[str]
    """Files that were made through this object."""

    def open(self, name: str) -> BinaryIO:
        """Open a file to read, seekable."""

    def create(self, name: str) -> AbstractContextManager[BinaryIO]:
        """Write a file: durable and visible, whole, once the block has ended without an error.

        It replaces one of this name. The stream may be closed inside the block.
        """

    def size(self, name: str) -> int:
        """Bytes of a file."""

    def modified_unix_s(self, name: str) -> float:
        """When a file was written, on the storage's own clock."""

    def names(self) -> list[str]:
        """All files, also those further down; empty when there is no such folder."""

    def children(self) -> list[str]:
        """Names of the folders directly in it, sorted; empty when nothing was ever put there.

        FileNotFoundError when what should hold it is missing too: a file system that is not
        mounted, a bucket that doesn't exist.
        """

    def remove(self, name: str, permit: Permit) -> None:
        """Remove a file, if it is there. Raises NotPermitted."""

    def remove_known(self, turn: Callable[[str], int | None], permit: Permit) -> None:
        """Remove the folder and its files one by one, and what was left of unfinished writes.

        `turn` says of each file when it goes, the lowest first, or None where it is unknown: then
        nothing at all is removed, and NotOurs is raised. So it is for a file of another owner.
        What goes `LAST` is there as long as anything else is.
        """

    @property
    def name(self) -> str:
        """The last part of its path."""
        return self.url.rstrip("/").rpartition("/")[2]

    def read(self, name: str) -> bytes:
        """All bytes of a file."""
        with self.open(name) as stream:
            return stream.read()

    def write(self, name: str, data: bytes) -> None:
        """Write a small file whole, as `create` does."""
        with self.create(name) as stream:
            stream.write(data)

    def exists(self, name: str) -> bool:
        """Whether a file is there; OSError when the storage does not say."""
        try:
            self.size(name)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return False
        return True


class LocalFolder(Folder):
    """A directory; made when the first file is written."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.url = str(path)
        self.created = set()

    def open(self, name: str) -> BinaryIO:
        """Open a file to read. FileNotFoundError where something else has its name: a pipe of
        somebody's would be waited for, for ever."""
        path = self._inside(name)
        descriptor = _open_at_once(path)
        try:
            _check_is_file(os.fstat(descriptor), path)
        except OSError:
            os.close(descriptor)
            raise
        return os.fdopen(descriptor, "rb")

    @contextmanager
    def create(self, name: str) -> Iterator[BinaryIO]:
        """Write under a temporary name, then rename; both are on disk afterwards."""
        path = self._inside(name)
        make_directory(path.parent)
        temporary = Path(unfinished_name(str(path)))
        try:
            with temporary.open("xb") as stream:
                yield stream
            sync_file(temporary)
            temporary.replace(path)
        finally:
            unlink(own_upload(str(temporary)), missing_ok=True)
        self.created.add(name)
        sync_directory(path.parent)

    def size(self, name: str) -> int:
        """Bytes of a file."""
        path = self._inside(name)
        facts = path.stat()
        _check_is_file(facts, path)
        return facts.st_size

    def modified_unix_s(self, name: str) -> float:
        """The file's own time."""
        return self._inside(name).stat().st_mtime

    def names(self) -> list[str]:
        """All files, but those still being written."""
        found = []
        for directory, _, files in os.walk(self.path, onerror=_raise_unless_missing):
            inside = Path(directory).relative_to(self.path)
            found += [(inside / file).as_posix() for file in files if not is_unfinished(file)]
        return sorted(found)

    def children(self) -> list[str]:
        """Names of the directories in it."""
        try:
            with os.scandir(self.path) as entries:
                return sorted(entry.name for entry in entries if entry.is_dir())
        except FileNotFoundError:
            self.path.parent.stat()
            return []

    def remove(self, name: str, permit: Permit) -> None:
        """Remove a file, if it is there."""
        unlink(permit.part(self.url, name, at=str(self._inside(name))), missing_ok=True)

    def remove_known(self, turn: Callable[[str], int | None], permit: Permit) -> None:
        """By descriptors: no link is followed, neither the folder's own name nor any below it."""
        permit.part(self.url, "")  # raises unless it is for the whole folder
        with ExitStack() as opened:
            above = _open_directory(self.path.parent)
            opened.callback(os.close, above)
            try:
                top = _open_directory(self.path.name, above)
            except FileNotFoundError:
                return
            except OSError as error:
                raise NotOurs(f"{self.path} is a link, or no directory") from error
            opened.callback(os.close, top)
            facts = os.fstat(top)
            if not _is_own(facts, self.path.parent):
                raise NotOurs(f"{self.path} belongs to another user (uid {facts.st_uid})")
            try:
                found = sorted(find_own(top, facts.st_uid, lambda n: turn(finished_name(n))))
            except NotPrivate as error:
                raise NotOurs(str(error)) from error
            kept: dict[str, bytes] = {}
            for when, name in found:
                if when == LAST:
                    kept |= _read_alone(top, name)
                remove_found(permit, self.url, top, name)
            try:
                rmdir(permit.part(self.url, "", above, self.path.name))
            except FileNotFoundError:
                return
            except OSError:
                _put_back(top, kept)
                raise

    def _inside(self, name: str) -> Path:
        """Its path. FileNotFoundError where a link leads out of the folder, or nowhere: what lies
        there is no file of this folder."""
        path = self.path / checked_name(name)
        try:
            is_inside = path.resolve().is_relative_to(self.path.resolve())
        except RuntimeError:  # links that lead to each other; none any more since Python 3.13
            is_inside = False
        if not is_inside:
            raise FileNotFoundError(errno.ENOENT, f"it lies outside {self.name}", str(path))
        return path


def open_folder(url: str) -> Folder:
    """The folder at a path or URL; raises Unusable for a URL that nobody here can open."""
    if not is_url(url):
        return LocalFolder(url)
    if url.startswith("file://"):
        return LocalFolder(url.removeprefix("file://"))
    from holdfast.contract.url_storage import UrlFolder

    return UrlFolder(url)


def list_children(root: str, prefix: str = "") -> list[str]:
    """Names of the folders directly in `root` that begin with `prefix`; see Folder.children."""
    return [name for name in open_folder(root).children() if name.startswith(prefix)]


def child(root: str, name: str) -> str:
    """Path or URL of what lies in `root` under this name."""
    return f"{root.rstrip('/')}/{name}"


def is_url(text: str) -> bool:
    """Whether this is a URL, and no path."""
    return _URL.match(text) is not None


def absolute(text: str) -> str:
    """A path made absolute, `~` too; a URL as it is."""
    return text.rstrip("/") if is_url(text) else str(Path(text).expanduser().absolute())


def checked_name(name: str) -> str:
    """The name, when it leads nowhere but further down; raises PermissionError."""
    if not name or name.startswith("/") or ".." in name.split("/") or "\0" in name:
        raise PermissionError(f"{name!r} is no name of a file inside a folder")
    return name


def written_here(folder: Folder, name: str) -> Permit:
    """To remove a file that was made through this very object. Raises NotPermitted."""
    if name not in folder.created:
        raise NotPermitted(f"{name} in {folder.url} was not written here")
    return Permit(Licence.OWN_FILE, Stored(folder.url, name), "written here")


def own_upload(path: str) -> Permit:
    """To remove what is written under a temporary name, which no other writer uses. Raises
    NotPermitted."""
    if not is_unfinished(path):
        raise NotPermitted(f"{path} is no temporary name")
    return Permit(Licence.OWN_FILE, DirectoryEntry(path), "a temporary name of this process")


def is_own_folder(folder: Folder) -> bool:
    """Whether a local folder is a directory, no link, of the owner whom our own files there get.

    That is another one than ours on NFS that squashes root and on some mounts of object stores.
    True of a URL, as object stores know no owners. Raises OSError.
    """
    if not isinstance(folder, LocalFolder):
        return True
    return _is_own(folder.path.lstat(), folder.path.parent)


def sight_of(folder: Folder, name: str) -> str:
    """The same text for all who see this very file, another one for who sees a copy of it.

    Empty where that can't be told. Raises OSError.
    """
    if not isinstance(folder, LocalFolder):
        return "" if _OF_ONE_NODE.match(folder.url) else folder.url
    facts = (folder.path / name).stat()
    sight = [facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns]
    if os.major(facts.st_dev):
        # A disk of this machine, whose image may lie on others, down to the inodes.
        return f"{sight} of {facts.st_dev} on {BOOT_ID.read_text().strip()}"
    return str(sight)


def strange_owner(folder: Folder) -> str:
    """Whose a local folder is, where what lies in it is not to be believed: it belongs neither to
    us nor to root nor to whom the directory above belongs. Else empty. Raises OSError."""
    if not isinstance(folder, LocalFolder):
        return ""
    named, real = folder.path.lstat(), folder.path.stat()
    believed = {0, os.geteuid(), folder.path.parent.stat().st_uid}
    strangers = {named.st_uid, real.st_uid} - believed
    if not strangers or strangers == {stored_owner(folder.path.parent)}:
        return ""
    return f"uid {min(strangers)}"


def _is_own(facts: os.stat_result, parent: Path) -> bool:
    if not stat.S_ISDIR(facts.st_mode):
        return False
    return facts.st_uid == os.geteuid() or facts.st_uid == stored_owner(parent)


def finished_name(name: str) -> str:
    """What a file would have been called, had its writing ended; other names as they are."""
    above, slash, last = name.rpartition("/")
    match = _UNFINISHED_NAME.fullmatch(last)
    return f"{above}{slash}{match[1]}" if match else name


def _read_alone(folder: int, name: str) -> dict[str, bytes]:
    """What is in the last file of an open directory, by its name; nothing where it is gone.

    Raises OSError while others are there: NFS renames what is removed and still open somewhere
    (`.nfs…`) and removes it once it is closed.
    """
    if others := [other for other in os.listdir(folder) if other != name]:
        raise OSError(errno.ENOTEMPTY, "a file in it is open elsewhere, or new", others[0])
    try:
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    except FileNotFoundError:
        return {}
    with os.fdopen(file, "rb") as stream:
        return {name: stream.read(_MOST_KEPT)}


def _put_back(folder: int, kept: dict[str, bytes]) -> None:
    """So that whose it is can still be told, and the rest be removed another time."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    for name, data in kept.items():
        with (
            suppress(FileExistsError),
            os.fdopen(os.open(name, flags, 0o666, dir_fd=folder), "wb") as stream,
        ):
            stream.write(data)


def _open_directory(path: str | Path, above: int | None = None) -> int:
    """Below a directory that is open already, no link is followed."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    return os.open(path, flags if above is None else flags | os.O_NOFOLLOW, dir_fd=above)


def unfinished_name(path: str) -> str:
    """Where a file is written until it is whole; no other writer uses the same."""
    above, slash, name = path.rpartition("/")
    return f"{above}{slash}.{name}.{secrets.token_hex(4)}{_UNFINISHED}"


def is_unfinished(name: str) -> bool:
    """Whether a file of this name is still being written, or never will be whole."""
    return name.rpartition("/")[2].startswith(".") and name.endswith(_UNFINISHED)


def make_directory(directory: Path) -> None:
    """Make a directory and those above it, so that they are there after a crash of the machine."""
    if directory.is_dir():
        return
    make_directory(directory.parent)
    directory.mkdir(exist_ok=True)
    sync_directory(directory.parent)


def sync_directory(directory: Path) -> None:
    """Make the names in a directory durable, where the file system can: some (SMB, some in user
    space) know no such thing of a directory, and say so."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _CANNOT_SYNC:
            raise
    finally:
        os.close(descriptor)


def sync_file(path: Path) -> None:
    """Make what is in a file durable; raises OSError.

    Through a descriptor of its own, as torch's writer closes the one that it was given. An error of
    writing back that nobody was told of yet is told here.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _open_at_once(path: Path) -> int:
    try:
        return os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno != errno.ENXIO:  # a socket, or the device of none
            raise
        raise FileNotFoundError(errno.ENOENT, NO_FILE, str(path)) from error


def _check_is_file(facts: os.stat_result, path: Path) -> None:
    if stat.S_ISDIR(facts.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(facts.st_mode):
        raise FileNotFoundError(errno.ENOENT, NO_FILE, str(path))


def _raise_unless_missing(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error
