"""Lets the launcher's own processes, the sidecar among them, see where this rank waits.

Where the kernel has Yama and its scope is 1, only a process's ancestors may read that; the sidecar
is a sibling. Elsewhere there is nothing to allow, and nothing happens.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any

PR_SET_PTRACER = 0x59616D61


def let_see(pid: int | None = None, library: Any = None) -> bool:
    """Let this process (by default our parent) and all that it starts trace us; whether it took."""
    libc = ctypes.CDLL(None) if library is None else library
    allowed = os.getppid() if pid is None else pid
    if allowed <= 1:
        return False  # our launcher is gone; whoever took us over was not asked
    return bool(libc.prctl(PR_SET_PTRACER, ctypes.c_ulong(allowed), 0, 0, 0) == 0)
