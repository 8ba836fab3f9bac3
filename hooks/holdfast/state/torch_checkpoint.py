"""torch.distributed.checkpoint on a Folder: without its remarks, with ordinary errors.

Its index is read by `restricted_pickle`, so nothing is unpickled that could run.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import (
    FileSystemBase,
    FileSystemReader,
    FileSystemWriter,
)
from torch.distributed.checkpoint.metadata import Metadata

from holdfast.contract.checkpoint_files import TORCH_METADATA, marked
from holdfast.contract.storage import Folder, written_here
from holdfast.state.restricted_pickle import load_metadata

_TEMPORARY = ".tmp"


@contextmanager
def torch_checkpoint(failure: type[Exception]) -> Iterator[None]:
    """Turn torch's CheckpointException into `failure`.

    It is no Exception, so no ordinary handler would stop it; and it also swallows what was meant
    for the interpreter (SystemExit from a signal handler), which is let through here.
    """
    with warnings.catch_warnings():
        # It remarks that it works without a process group; that is meant so.
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        warnings.filterwarnings("ignore", category=FutureWarning, module="torch")
        try:
            yield
        except CheckpointException as error:
            causes = {rank: wrapped[0] for rank, wrapped in error.failures.items()}
            for cause in causes.values():
                if not isinstance(cause, Exception):
                    raise cause from None
            text = "; ".join(f"rank {rank}: {cause}" for rank, cause in sorted(causes.items()))
            raise failure(text) from error


@contextmanager
def told_by_storage() -> Iterator[None]:
    """Let through what the storage said: torch's archive writer raises an error of its own over it,
    in which a full disk is an `unexpected pos`."""
    try:
        yield
    except RuntimeError as error:
        if isinstance(error.__context__, OSError):
            raise error.__context__ from None
        raise


class FolderWriter(FileSystemWriter):  # type: ignore[misc]
    """torch's own writer, into a folder; refuses one that already holds a checkpoint."""

    def __init__(self, folder: Folder) -> None:
        # The folder makes files durable; torch would call os.sync() for what has no descriptor.
        super().__init__(folder.url, sync_files=False, overwrite=False)
        self.fs = FolderFiles(folder)
        self.path = folder.url


class FolderReader(FileSystemReader):  # type: ignore[misc]
    """torch's own reader, from a folder."""

    def __init__(self, folder: Folder) -> None:
        super().__init__(folder.url)
        self.fs = FolderFiles(folder)
        self.path = folder.url
        self._folder = folder

    def read_metadata(self, *_: Any, **__: Any) -> Metadata:
        """The index; raises OSError, or Refused when it holds more than tensors."""
        return load_metadata(self._folder.read(TORCH_METADATA))


class FolderFiles(FileSystemBase):  # type: ignore[misc]
    """What torch asks of a file system, answered by a folder; paths are names inside it.

    torch writes its index under a temporary name and renames it. A folder's files are whole when
    they appear, and object stores know no renaming, so it is kept until it gets its name.
    """

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._unnamed: dict[str, bytes] = {}

    @contextmanager
    def create_stream(self, path: Any, mode: str) -> Iterator[BinaryIO]:
        """Open a file."""
        if mode == "rb":
            with self._folder.open(path) as stream:
                yield stream
        elif path.endswith(_TEMPORARY):
            kept = io.BytesIO()
            yield kept
            self._unnamed[path] = kept.getvalue()
        else:
            with self._folder.create(path) as stream, told_by_storage():
                yield stream

    def concat_path(self, path: Any, suffix: str) -> str:
        """The name alone: all files lie in the folder."""
        return suffix

    def rename(self, path: Any, new_path: Any) -> None:
        """Give what was kept its name."""
        self._folder.write(new_path, self._unnamed.pop(path))

    def init_path(self, path: Any) -> Any:
        """As it is."""
        return path

    def mkdir(self, path: Any) -> None:
        """A folder is made by its first file."""

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:
        """Never asked: the writer and the reader are made by us."""
        return True

    def exists(self, path: Any) -> bool:
        """Whether there is such a file."""
        return self._folder.exists(path)

    def rm_file(self, path: Any) -> None:
        """Remove a file: torch asks for it before it writes its index anew."""
        folder = self._folder
        permit = written_here(folder, path) if path in folder.created else marked(folder)
        folder.remove(path, permit)
