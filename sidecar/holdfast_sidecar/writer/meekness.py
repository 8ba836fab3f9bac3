"""A thread that gives way: little CPU, and the disk only when nobody else wants it."""

from __future__ import annotations

import ctypes
import os
import platform
import threading

PRIORITY = 10
"""A tenth of a core that ranks keep busy. The least, 19, would be a seventieth: where all cores are
busy, importing torch alone would take minutes."""

_IOPRIO_SET = {"x86_64": 251, "aarch64": 30}
_WHO_PROCESS = 1
_CLASS_IDLE = 3 << 13


def be_meek() -> None:
    """This thread only, on Linux: quick questions are answered by others at ordinary priority."""
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), PRIORITY)
    number = _IOPRIO_SET.get(platform.machine())
    if number is not None:  # no wrapper in libc; a kernel that refuses leaves things as they are
        ctypes.CDLL(None).syscall(number, _WHO_PROCESS, 0, _CLASS_IDLE)
