"""Files that are there, whole, after a crash of the machine, and that never replace another."""

from __future__ import annotations

import os
from pathlib import Path


def write_durably(path: Path, data: bytes) -> None:
    """Write under a temporary name, then rename; content and name are synced."""
    temporary = path.with_name(f".{path.name}.writing")
    with temporary.open("wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())
    temporary.replace(path)
    sync_directory(path.parent)


def append_numbered(directory: Path, stem: str, data: bytes) -> Path:
    """Write `<stem>-<n>.json` with the first free number; two writers get two files."""
    number = 1
    while True:
        path = directory / f"{stem}-{number}.json"
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        except FileExistsError:
            number += 1
            continue
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        sync_directory(directory)
        return path


def sync_directory(directory: Path) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
