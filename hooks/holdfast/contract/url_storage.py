"""A folder behind a URL, through fsspec's driver for it. Imported only where a URL is used.

What was not committed on an object store is aborted; elsewhere files are renamed when they are
whole. Drivers raise what they like; here it all becomes OSError.
"""

from __future__ import annotations

import errno
import io
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, BinaryIO, cast
from urllib.parse import urlsplit

from holdfast.contract.permit import Permit
from holdfast.contract.removing import remove_key, remove_prefix
from holdfast.contract.storage import (
    Folder,
    NotOurs,
    Unusable,
    checked_name,
    finished_name,
    is_unfinished,
    own_upload,
    unfinished_name,
)

log = logging.getLogger(__name__)

_BLOCK = 8 << 20
_BLOCKS_KEPT = 8
"""Read in blocks, some of which are kept: torch looks at the end of each tensor before it reads it,
and reading ahead would fetch everything twice."""

_BUFFER = 1 << 20
_BUCKETS = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "oss", "r2"})
"""Schemes of object stores: a file appears there when its upload is committed, and the first part
of a path is a container that nobody makes by writing into it."""


class UrlFolder(Folder):
    """A prefix of an object store, or a directory on some other remote storage."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self._scheme = url.partition("://")[0].lower()
        self._driver, self._path = _reach(self.url, self._scheme)
        self._commits = self._scheme in _BUCKETS
        self.created = set()

    def open(self, name: str) -> BinaryIO:
        """Open a file to read; it is fetched in blocks."""
        path = self._inside(name)
        with _Trouble(path):
            stream = self._driver.open(
                path,
                "rb",
                block_size=_BLOCK,
                cache_type="blockcache",
                cache_options={"maxblocks": _BLOCKS_KEPT},
            )
        return cast("BinaryIO", io.BufferedReader(_Reading(stream, path), _BUFFER))

    @contextmanager
    def create(self, name: str) -> Iterator[BinaryIO]:
        """Upload in parts and commit at the end, or write beside it and rename."""
        path = self._inside(name)
        written = path if self._commits else unfinished_name(path)
        with _Trouble(path):
            stream = self._open_to_write(written)
        writing = _Writing(stream, path)
        buffered = io.BufferedWriter(writing, _BUFFER)
        whole = False
        try:
            yield cast("BinaryIO", buffered)
            buffered.close()
            writing.finish()
            whole = True
        finally:
            if not whole:
                writing.give_up()
                buffered.close()
                if not self._commits:
                    self._remove_unfinished(written)
        if not self._commits:
            with _Trouble(path):
                self._driver.mv(written, path)
        self.created.add(name)

    def write(self, name: str, data: bytes) -> None:
        """One request, where the store carries it out whole or not at all."""
        if not self._commits:
            super().write(name, data)
            return
        path = self._inside(name)
        with _Trouble(path):
            self._driver.pipe_file(path, data)
        self.created.add(name)

    def read(self, name: str) -> bytes:
        """All bytes of a file, in one request."""
        path = self._inside(name)
        with _Trouble(path):
            return bytes(self._driver.cat_file(path))

    def size(self, name: str) -> int:
        """Bytes of a file."""
        path = self._inside(name)
        with _Trouble(path):
            found = self._driver.info(path)
        if found["type"] == "directory":
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return int(found["size"])

    def modified_unix_s(self, name: str) -> float:
        """What the store says of it."""
        path = self._inside(name)
        with _Trouble(path):
            return float(self._driver.modified(path).timestamp())

    def names(self) -> list[str]:
        """All files below the prefix."""
        with _Trouble(self._path):
            found = self._driver.find(self._path)
        inside = (str(path).removeprefix(f"{self._path}/") for path in found)
        return sorted(
            name for name in inside if name and not name.endswith("/") and not is_unfinished(name)
        )

    def children(self) -> list[str]:
        """Names of what lies directly below and has something in it."""
        with _Trouble(self._path):
            try:
                found = self._driver.ls(self._path, detail=True)
            except FileNotFoundError:
                bucket = self._path.partition("/")[0]
                if self._commits and not self._driver.exists(bucket):
                    raise FileNotFoundError(errno.ENOENT, "no such bucket", bucket) from None
                return []
        folders = (entry["name"] for entry in found if entry["type"] == "directory")
        return sorted(str(name).rstrip("/").rpartition("/")[2] for name in folders)

    def remove(self, name: str, permit: Permit) -> None:
        """Remove a file, if it is there."""
        path = self._inside(name)
        with _Trouble(path), suppress(FileNotFoundError):
            remove_key(permit.part(self.url, name, at=path), self._driver)

    def remove_known(self, turn: Callable[[str], int | None], permit: Permit) -> None:
        """Key by key, each of them known by name; uploads of such names that never ended are
        aborted."""
        permit.part(self.url, "")  # raises unless it is for the whole folder
        with _Trouble(self._path):
            paths = map(str, self._driver.find(self._path))
            # A key that ends so is what a console leaves to show an empty folder.
            found = [path for path in paths if path != self._path and not path.endswith("/")]
        turns = {path: turn(finished_name(self._name_of(path))) for path in found}
        for path, when in turns.items():
            if when is None:
                raise NotOurs(f"{self._name_of(path)} was not written by Holdfast")
        for path in sorted(found, key=lambda path: (turns[path], path)):
            with _Trouble(path), suppress(FileNotFoundError):
                key = permit.part(self.url, self._name_of(path), at=path)
                remove_key(key, self._driver)
        if not self._commits:
            self._remove_empty_directories(found, permit)
        if hasattr(self._driver, "abort_mpu"):
            self._abort_unfinished_uploads(turn)

    def _remove_empty_directories(self, gone: Iterable[str], permit: Permit) -> None:
        """Of a file system behind a URL; a directory that is not empty stays."""
        folders = {self._path}
        for path in gone:
            while (path := path.rpartition("/")[0]) and path != self._path:
                folders.add(path)
        for folder in sorted(folders, key=len, reverse=True):
            try:
                with _Trouble(folder):
                    prefix = permit.part(self.url, self._name_of(folder), at=folder)
                    remove_prefix(prefix, self._driver)
            except OSError as error:
                log.info("the directory %s stays: %s", folder, error)

    def _name_of(self, path: str) -> str:
        return path.removeprefix(f"{self._path}/")

    def _abort_unfinished_uploads(self, turn: Callable[[str], int | None]) -> None:
        bucket, prefix, _ = self._driver.split_path(self._path)
        try:
            with _Trouble(self._path):
                found = self._driver.call_s3(
                    "list_multipart_uploads", Bucket=bucket, Prefix=f"{prefix}/"
                )
                for upload in found.get("Uploads", []):
                    if turn(upload["Key"].removeprefix(f"{prefix}/")) is None:
                        continue
                    self._driver.abort_mpu(bucket, upload["Key"], upload["UploadId"])
        except OSError as error:  # it may be forbidden to look; a rule of the bucket's does it then
            log.info("unfinished uploads below %s were not aborted: %s", self.url, error)

    def _open_to_write(self, path: str) -> Any:
        if self._commits:
            return self._driver.open(path, "wb", autocommit=False)
        self._driver.makedirs(path.rpartition("/")[0], exist_ok=True)
        return self._driver.open(path, "wb")

    def _remove_unfinished(self, written: str) -> None:
        """What broke the writing off is what is to be told, not that nothing can be removed."""
        try:
            with _Trouble(written), suppress(FileNotFoundError):
                remove_key(own_upload(written), self._driver)
        except OSError as error:
            log.warning("%s was left behind: %s", written, error)

    def _inside(self, name: str) -> str:
        return f"{self._path}/{checked_name(name)}"


class _Trouble:
    """Around calls of a driver: whatever they raise leaves as OSError.

    There is no common ancestor of what drivers raise (botocore's errors, aiohttp's, those of each
    cloud), so anything that isn't ours counts as trouble of the storage's.
    """

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if isinstance(error, Exception) and not isinstance(error, (OSError, MemoryError)):
            text = f"{type(error).__name__}: {error}"
            raise OSError(errno.EIO, text, self._path) from error


class _Reading(io.RawIOBase):
    """A driver's stream to read, with ordinary errors."""

    def __init__(self, stream: Any, path: str) -> None:
        self._stream = stream
        self._path = path

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read as much as there is room for."""
        with _Trouble(self._path):
            data = self._stream.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to another place."""
        with _Trouble(self._path):
            return int(self._stream.seek(offset, whence))

    def tell(self) -> int:
        """Where it is."""
        return int(self._stream.tell())

    def close(self) -> None:
        """Let go of what was fetched."""
        if not self.closed:
            super().close()
            with _Trouble(self._path):
                self._stream.close()


class _Writing(io.RawIOBase):
    """A driver's stream to write, with ordinary errors; closing it commits nothing."""

    def __init__(self, stream: Any, path: str) -> None:
        self._stream = stream
        self._path = path
        self._is_given_up = False

    def writable(self) -> bool:
        """It is."""
        return True

    def write(self, data: Any) -> int:
        """Hand on to the driver."""
        if not self._is_given_up:
            with _Trouble(self._path):
                self._stream.write(data)
        return len(data)

    def finish(self) -> None:
        """All is written: make it a file."""
        with _Trouble(self._path):
            self._stream.close()
            if hasattr(self._stream, "commit"):
                self._stream.commit()

    def give_up(self) -> None:
        """Abort the upload; the driver must not complete it when it throws the stream away."""
        self._is_given_up = True
        try:
            with _Trouble(self._path):
                if hasattr(self._stream, "discard"):
                    self._stream.discard()
        except OSError as error:
            log.warning("the upload of %s could not be aborted: %s", self._path, error)
        from fsspec.spec import AbstractBufferedFile

        if isinstance(self._stream, AbstractBufferedFile):
            self._stream.closed = True

    def tell(self) -> int:
        """Bytes written so far."""
        return int(self._stream.tell())


def _reach(url: str, scheme: str) -> tuple[Any, str]:
    """The driver and the path inside it; raises Unusable."""
    if urlsplit(url).password is not None:
        raise Unusable(
            f"a {scheme}:// URL with a password in it would end up in logs; give the driver its "
            "credentials by its own environment variables or files"
        )
    try:
        import fsspec
    except ImportError:
        raise Unusable(f"{url}: URLs need fsspec: pip install fsspec") from None
    try:
        # Listings are never remembered: other nodes write into the same place.
        driver, path = fsspec.url_to_fs(url, use_listings_cache=False)
    except ImportError as error:
        raise Unusable(f"{url}: {_what_to_install(scheme, error)}") from None
    except ValueError as error:
        raise Unusable(f"{url}: no storage is known under {scheme}:// ({error})") from None
    return driver, str(path).rstrip("/")


def _what_to_install(scheme: str, error: ImportError) -> str:
    from fsspec.registry import known_implementations

    package = str(known_implementations.get(scheme, {}).get("class", "")).partition(".")[0]
    if package in ("", "fsspec"):
        return f"its driver can't be imported: {error}"
    return f"the driver for {scheme}:// is not installed: pip install {package}"
