"""Descriptors of ours in a process that is not: a script may close all that it did not open, as
daemons do, and get our numbers for files of its own. Nothing of ours may close those, or write into
them.
"""

from __future__ import annotations

import atexit
import fcntl
import mmap
import os
import weakref

OUT_OF_THE_WAY = 512
"""Beyond what closes a few hundred descriptors, and below the usual limit of 1,024."""

_mapped: weakref.WeakSet[mmap.mmap] = weakref.WeakSet()


def move_out_of_the_way(descriptor: int) -> int:
    """The same file under a high number, where the limit allows one; else as it is."""
    try:
        moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, OUT_OF_THE_WAY)
    except OSError:
        return descriptor
    os.close(descriptor)
    return moved


def map_file(descriptor: int, size: int) -> mmap.mmap:
    """Map it. What Python maps has a descriptor of its own, and closes that number when it goes; in
    an interpreter that ends it stays, and the kernel unmaps it."""
    memory = mmap.mmap(descriptor, size)
    _mapped.add(memory)
    return memory


@atexit.register
def _outlive_the_interpreter() -> None:
    if not len(_mapped):
        return
    import ctypes

    for memory in list(_mapped):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(memory))
