"""The ends of logs: read in whole lines, so that no secret loses the name that gives it away."""

from __future__ import annotations

import os
from pathlib import Path


def read_tail(path: Path, most_bytes: int, begins: int = 0) -> str:
    """The last lines of a file within so many bytes, and after its first `begins` bytes; empty
    when it can't be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        size = os.fstat(descriptor).st_size
        # Shorter than it was: somebody rotated it, and what is here now is all new.
        start = max(begins if begins <= size else 0, size - most_bytes)
        text = os.pread(descriptor, most_bytes, start).decode(errors="replace")
    except OSError:
        return ""
    finally:
        os.close(descriptor)
    is_cut = start > 0 and start != begins
    return text.partition("\n")[2] if is_cut else text
