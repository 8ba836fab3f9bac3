"""Whether processes of our own may be traced at all: tried, since many things may forbid it."""

from __future__ import annotations

import ctypes
import os

from holdfast.ending_processes import signal_child
from holdfast.permit import own_child

ATTACH = 0x4206
"""PTRACE_SEIZE: it stops nobody."""


def may_trace_children() -> bool | None:
    """Tried on a child that does nothing else. A container's seccomp profile refuses what the
    kernel's own settings allow. None where it can't be tried."""
    ends, held = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(held)
        os.read(ends, 1)  # until the parent lets go of the other end, or is gone
        os._exit(0)
    os.close(ends)
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        return int(libc.ptrace(ATTACH, child, None, None)) == 0
    except (AttributeError, OSError):
        return None
    finally:
        signal_child(own_child(child))
        os.close(held)
        os.waitpid(child, 0)
