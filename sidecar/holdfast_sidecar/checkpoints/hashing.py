"""Which files of a checkpoint belong to which rank, and their hashes."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable

from holdfast.checkpoint_files import MANIFEST
from holdfast.storage import Folder
from holdfast_sidecar.checkpoints import verdict
from holdfast_sidecar.records.checkpoint import FileFact

_OWNED = re.compile(r"__(\d+)_")
_CHUNK = 1 << 20  # hashlib lets go of the interpreter lock for pieces this large


def is_sealing(name: str) -> bool:
    """Whether a name is one of Holdfast's own: manifest or verdict."""
    return name in (MANIFEST, verdict.VOID) or verdict.NAME.fullmatch(name) is not None


def owner(name: str) -> int:
    """The rank whose node hashes this file: torch's and our own are named `__<rank>_…`.

    All else (torch's metadata, what a user's own save function wrote) is rank 0's.
    """
    match = _OWNED.match(name)
    return int(match[1]) if match else 0


def list_files(folder: Folder, ranks: Iterable[int]) -> list[str]:
    """Relative names of the files that these ranks' node hashes."""
    wanted = set(ranks)
    names = folder.names()
    return [name for name in names if not is_sealing(name) and owner(name) in wanted]


def hash_file(
    folder: Folder, name: str, tell: Callable[[int], object] = lambda _: None
) -> FileFact:
    """Size and SHA-256 of what is in a file; `tell` hears of every piece read, in bytes."""
    digest = hashlib.sha256()
    size = 0
    with folder.open(name) as stream:
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
            size += len(chunk)
            tell(len(chunk))
    return FileFact(size, digest.hexdigest())


def hash_files(
    folder: Folder, names: Iterable[str], tell: Callable[[int], object] = lambda _: None
) -> dict[str, FileFact]:
    """Facts of all these files; raises OSError when one can't be read."""
    return {name: hash_file(folder, name, tell) for name in names}
