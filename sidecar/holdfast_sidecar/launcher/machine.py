"""Which machine this is: the id by which a bad one is known again under another name."""

from __future__ import annotations

import socket
from pathlib import Path

MACHINE_ID = Path("/etc/machine-id")


def read_machine(path: Path = MACHINE_ID) -> str:
    """The machine's id; the host's name where there is none (containers)."""
    try:
        return path.read_text().strip() or socket.gethostname()
    except OSError:
        return socket.gethostname()
