"""Making a child die with its parent, however the parent dies."""

from __future__ import annotations

import ctypes
import os
import signal

PR_SET_PDEATHSIG = 1

_libc = ctypes.CDLL(None, use_errno=True)
"""Loaded before any fork: the child may not load libraries between fork and exec."""


def die_with(parent_pid: int) -> None:
    """Run in the child before exec: SIGKILL when the thread that forked us ends.

    A parent that died before the request is noticed by looking again. SIGKILL, since a stopped
    server would not heed SIGTERM, and it has nothing to save.
    """
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent_pid:
        os._exit(1)
