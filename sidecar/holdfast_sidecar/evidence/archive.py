"""A bundle: everything that one node kept of an incident in one file, with an index of it."""

from __future__ import annotations

import hashlib
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast_sidecar.evidence.kept import write_file

INDEX = "bundle.json"
SUFFIX = ".tar.gz"
TEMPORARY = ".new"


def archive_of(directory: Path) -> Path:
    """Where the evidence in this directory is packed."""
    return directory.with_name(directory.name + SUFFIX)


def pack(directory: Path, facts: Mapping[str, Any]) -> Path:
    """Write the index, last of all files, then the archive beside the directory. Raises OSError."""
    files = _files(directory)
    index = {
        **facts,
        "files": {
            path.name: {
                "size": path.stat().st_size,
                "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
            }
            for path in files
        },
    }
    write_file(directory / INDEX, json.dumps(index, indent=1).encode())
    archive = archive_of(directory)
    temporary = archive.with_name(archive.name + TEMPORARY)
    with tarfile.open(temporary, "w:gz", compresslevel=6) as tar:
        for path in (directory / INDEX, *files):
            tar.add(path, f"{directory.name}/{path.name}", recursive=False, filter=_anonymous)
    temporary.chmod(0o600)
    temporary.replace(archive)
    return archive


def size_bytes(directory: Path) -> int:
    """What lies in the directory."""
    return sum(path.stat().st_size for path in _files(directory))


def _files(directory: Path) -> list[Path]:
    return [
        path
        for path in sorted(directory.iterdir())
        if path.is_file() and path.name != INDEX and path.suffix != TEMPORARY
    ]


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Whoever gets the bundle need not learn who has which number on this machine."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member
