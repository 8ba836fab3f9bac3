"""Which files of a checkpoint belong to which rank, and their hashes."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from pathlib import Path

from holdfast_sidecar.coordination.reports import FileFact

_OWNED = re.compile(r"__(\d+)_")
_CHUNK = 1 << 20  # hashlib lets go of the interpreter lock for pieces this large


def is_sealing(name: str) -> bool:
    """Whether a name is one of Holdfast's own: manifest, verdict, or a file not yet renamed."""
    return bool(re.fullmatch(r"manifest\.json|(poisoned|unloaded)-\d+\.json|\..*\.writing", name))


def owner(name: str) -> int:
    """The rank whose node hashes this file: torch's and our own are named `__<rank>_…`.

    All else (torch's metadata, what a user's own save function wrote) is rank 0's.
    """
    match = _OWNED.match(name)
    return int(match[1]) if match else 0


def list_files(directory: Path, ranks: Iterable[int]) -> list[str]:
    """Relative names of the files that these ranks' node hashes."""
    wanted = set(ranks)
    names = (
        path.relative_to(directory).as_posix()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and not path.is_symlink()
    )
    return [name for name in names if not is_sealing(name) and owner(name) in wanted]


def hash_file(path: Path) -> FileFact:
    """Size and SHA-256 of what is in a file."""
    digest = hashlib.sha256()
    size = 0
    with path.open("rb", buffering=0) as stream:
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
            size += len(chunk)
    return FileFact(size, digest.hexdigest())


def hash_files(directory: Path, names: Iterable[str]) -> dict[str, FileFact]:
    """Facts of all these files; raises OSError when one can't be read."""
    return {name: hash_file(directory / name) for name in names}
