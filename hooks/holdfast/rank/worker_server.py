"""torch's own worker server, on a unix socket beside the page.

Asked by the sidecar under suspicion, it tells where this rank stands in its collectives, from a
thread that needs no GIL. A thread that it can't start aborts the process, where no exception can
be caught, so it is opened only where there is room for many times as many threads, by every limit
that can be read, and because they were started once.
"""

from __future__ import annotations

import _thread
import contextlib
import ctypes
import os
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from holdfast.contract.owned import owned_file
from holdfast.contract.removing import unlink

LONGEST = 107
"""Bytes of a unix socket's address, without the zero that closes it (unix(7))."""

ERRORS_ONLY = 2
"""Of torch's levels in C++: 0 information, 1 warnings, 2 errors."""

LEAST_POOL = 8
"""Threads of the server's pool, at least; else one less than there are cores (cpp-httplib)."""

ROOM_FOR = 4
"""So many times what the node's ranks start must fit: threads of loaders and libraries come later,
and must find room as if this had not been there."""

STACK_BYTES = 8 << 20
"""Address space of a thread's stack where its size is not limited."""

CONTROL_GROUPS = ("/sys/fs/cgroup/pids", "/sys/fs/cgroup", "/sys/fs/cgroup/unified")
"""Where limits of threads lie: of version 1, of version 2, and where both are mounted."""


def has_room(local_ranks: int, cpus: int | None = None) -> bool:
    """Whether the servers of so many ranks may start their threads here, and many more.

    Where that can't be read it is not so. Nor can all of it be read: in a pod with a cgroup
    namespace of its own, the limit lies in a group above those that are seen. So this rank's share
    is started as well.
    """
    # As the library counts; os.cpu_count() obeys PYTHON_CPU_COUNT and -X cpu_count.
    cores = os.sysconf("SC_NPROCESSORS_ONLN") if cpus is None else cpus
    share = ROOM_FOR * (max(LEAST_POOL, cores - 1) + 1)
    threads = share * local_ranks
    try:
        is_room = min(_rooms()) >= threads and _address_space() >= threads * _stack()
    except (OSError, ValueError, IndexError):
        return False
    return is_room and can_start(share)


def can_start(threads: int) -> bool:
    """Start so many threads, all there at once, and have them end.

    The interpreter's own raise an error where the library's would abort the process. All ranks of
    a node do this at about the same time, each for its share.
    """
    gate, over = _thread.allocate_lock(), _thread.allocate_lock()
    left = 0

    def wait_at_the_gate() -> None:
        nonlocal left
        with gate:
            left -= 1
            if left == 0:
                over.release()

    over.acquire()
    with gate:
        try:
            for _ in range(threads):
                _thread.start_new_thread(wait_at_the_gate, ())
                left += 1
        except (RuntimeError, MemoryError):
            pass
        started = left
    if started:
        over.acquire()
    return started == threads


def _rooms() -> Iterator[int]:
    """How many threads may still be started, by each limit."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, group = line.split(":", 2)
        if controllers not in ("", "pids"):
            continue
        for top in map(Path, CONTROL_GROUPS):
            nearest = top / group.lstrip("/")
            for place in (nearest, *nearest.parents):
                if place.is_relative_to(top):
                    yield from _room_of_group(place)
    limit, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    if limit != resource.RLIM_INFINITY:
        yield limit - _own_threads()
    everyone = int(Path("/proc/loadavg").read_text().split()[3].partition("/")[2])
    for name in ("threads-max", "pid_max"):
        yield int(Path("/proc/sys/kernel", name).read_text()) - everyone


def _room_of_group(place: Path) -> Iterator[int]:
    with contextlib.suppress(OSError, ValueError):  # no such file, or `max`: no limit
        limit = int((place / "pids.max").read_text())
        yield limit - int((place / "pids.current").read_text())


def _own_threads() -> int:
    """Of all processes of this user that can be seen."""
    user, threads = os.getuid(), 0
    for process in Path("/proc").iterdir():
        if process.name.isdecimal():
            with contextlib.suppress(OSError):  # it ended
                if process.stat().st_uid == user:
                    threads += len(list((process / "task").iterdir()))
    return threads


def _address_space() -> float:
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return float("inf")
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return limit - pages * resource.getpagesize()


def _stack() -> int:
    limit, _ = resource.getrlimit(resource.RLIMIT_STACK)
    return STACK_BYTES if limit == resource.RLIM_INFINITY else limit


def open_server(torch: Any, path: Path) -> bool:
    """Listen at `path`; False where this torch has no such server.

    Nobody ever closes it. To be destroyed it would join its thread, which a forked child doesn't
    have: a child that left by `sys.exit` would wait for ever. It ends with the process.
    """
    server = getattr(torch._C._distributed_c10d, "_WorkerServer", None)
    if server is None:
        return False
    unlink(owned_file(path), missing_ok=True)  # of a program that replaced itself (exec)
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
