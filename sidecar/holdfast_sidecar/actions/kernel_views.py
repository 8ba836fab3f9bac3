"""What the kernel says of a process that can't speak for itself: where its threads and children
wait, and which files it has open. Nothing here reads the process's own memory."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from holdfast_sidecar.linux.files import read_if_any

THREADS_KEPT = 64
CHILDREN_KEPT = 64
FILES_KEPT = 256

_OF_PROCESS = ("status", "wchan", "syscall", "stack", "io", "limits", "cgroup")
_OF_THREAD = ("comm", "wchan", "syscall", "stack")
_OF_CHILD = ("comm", "wchan", "stat", "syscall")
_OF_ROOT_ALONE = "stack"

READ_BYTES = 65_536


def read_kernel_views(proc: Path, pid: int) -> dict[str, Any]:
    """All of it as text; what can't be read is empty."""
    directory = f"{proc}/{pid}"
    views: dict[str, Any] = {name: _read(f"{directory}/{name}") for name in _OF_PROCESS}
    of_thread = _OF_THREAD if views[_OF_ROOT_ALONE] else _OF_THREAD[:-1]
    views["threads"] = {
        thread: {name: _read(f"{directory}/task/{thread}/{name}") for name in of_thread}
        for thread in _list(f"{directory}/task")[:THREADS_KEPT]
    }
    views["children"] = {
        child: {name: _read(f"{proc}/{child}/{name}") for name in _OF_CHILD}
        for child in _children(directory, views["threads"])[:CHILDREN_KEPT]
    }
    views["files"] = _read_files(f"{directory}/fd")
    return views


def _read(path: str) -> str:
    return read_if_any(path, READ_BYTES)


def _children(directory: str, threads: dict[str, Any]) -> list[str]:
    """A child belongs to the thread that started it."""
    found: list[str] = []
    for thread in threads:
        found += _read(f"{directory}/task/{thread}/children").split()
    return found


def _read_files(directory: str) -> dict[str, str]:
    files = {}
    for name in _list(directory)[:FILES_KEPT]:
        try:
            files[name] = os.readlink(f"{directory}/{name}")  # noqa: PTH115 - as `kernel_files`
        except OSError:
            continue
    return files


def _list(directory: str) -> list[str]:
    try:
        names = os.listdir(directory)  # noqa: PTH208 - as `kernel_files`
    except OSError:
        return []
    return sorted(names, key=lambda name: (len(name), name))
