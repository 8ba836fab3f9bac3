"""A folder of files on a local path or any URL that fsspec has a driver for.

All trouble is OSError: FileNotFoundError where a file isn't there, another where the storage does
not say. Nothing is ever there half: a file appears, whole, when its writing has ended well.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import BinaryIO, Protocol

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.\-:]*://")
_UNFINISHED = ".writing"


class Unusable(OSError):
    """This URL can't be used here; says what to install or to change."""


class Folder(Protocol):
    """Files by name, relative to the folder, with `/` between parts."""

    url: str
    """The path or URL as text; nothing secret is in it."""

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

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""

    def remove_all(self) -> None:
        """Remove the folder, and what was left of writes that never ended."""

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

    def open(self, name: str) -> BinaryIO:
        """Open a file to read."""
        return self._inside(name).open("rb")

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
            temporary.unlink(missing_ok=True)
        sync_directory(path.parent)

    def size(self, name: str) -> int:
        """Bytes of a file."""
        path = self._inside(name)
        if path.is_dir():
            raise IsADirectoryError(f"{path} is a directory")
        return path.stat().st_size

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

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        self._inside(name).unlink(missing_ok=True)

    def remove_all(self) -> None:
        """Remove the directory."""
        try:
            shutil.rmtree(self.path)
        except FileNotFoundError:
            if self.path.exists():  # someone else is removing it too
                raise

    def _inside(self, name: str) -> Path:
        path = self.path / checked_name(name)
        if not path.resolve().is_relative_to(self.path.resolve()):
            raise PermissionError(f"{name} lies outside {self.name}")
        return path


def open_folder(url: str) -> Folder:
    """The folder at a path or URL; raises Unusable for a URL that nobody here can open."""
    if not is_url(url):
        return LocalFolder(url)
    if url.startswith("file://"):
        return LocalFolder(url.removeprefix("file://"))
    from holdfast.url_storage import UrlFolder

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
    """Make the names in a directory durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
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


def _raise_unless_missing(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error
