"""torch's own worker server, on a unix socket beside the page.

Asked by the sidecar under suspicion, it tells where this rank stands in its collectives, from a
thread that needs no GIL.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

LONGEST = 107
"""Bytes of a unix socket's address, without the zero that closes it (unix(7))."""

ERRORS_ONLY = 2
"""Of torch's levels in C++: 0 information, 1 warnings, 2 errors."""


def open_server(torch: Any, path: Path) -> bool:
    """Listen at `path`; False where this torch has no such server.

    Nobody ever closes it. To be destroyed it would join its thread, which a forked child doesn't
    have: a child that left by `sys.exit` would wait for ever. It ends with the process.
    """
    server = getattr(torch._C._distributed_c10d, "_WorkerServer", None)
    if server is None:
        return False
    path.unlink(missing_ok=True)  # of a program that replaced itself (exec)
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        is_short = len(os.fsencode(path)) <= LONGEST
        address = str(path) if is_short else f"/proc/self/fd/{folder}/{path.name}"
        with _quietly(Path(torch.__file__).with_name("lib") / "libc10.so"):
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(server(address)))
    finally:
        os.close(folder)
    return True


@contextlib.contextmanager
def _quietly(library: Path) -> Iterator[None]:
    """Without the warning that the server listens now, in every rank's output.

    torch reads how much to log once, at its start; the word that holds it can be set any time.
    """
    try:
        level = ctypes.c_int.in_dll(ctypes.CDLL(str(library)), "FLAGS_caffe2_log_level")
    except (OSError, ValueError):  # a torch that is built otherwise: then it says so
        yield
        return
    before = level.value
    level.value = max(before, ERRORS_ONLY)
    try:
        yield
    finally:
        level.value = before
