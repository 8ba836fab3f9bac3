"""A file that is there, whole, after a crash of the machine, and that never replaces another."""

from __future__ import annotations

import os
from pathlib import Path

from holdfast.checkpoint_files import sync_directory


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
