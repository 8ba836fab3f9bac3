"""A thread that gives way: least CPU priority, and the disk only when nobody else wants it."""

from __future__ import annotations

import ctypes
import os
import platform
import threading

LEAST_PRIORITY = 19

_IOPRIO_SET = {"x86_64": 251, "aarch64": 30}
_WHO_PROCESS = 1
_CLASS_IDLE = 3 << 13


def be_meek() -> None:
    """This thread only, on Linux: quick questions are answered by others at ordinary priority."""
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), LEAST_PRIORITY)
    number = _IOPRIO_SET.get(platform.machine())
    if number is not None:  # no wrapper in libc; a kernel that refuses leaves things as they are
        ctypes.CDLL(None).syscall(number, _WHO_PROCESS, 0, _CLASS_IDLE)
