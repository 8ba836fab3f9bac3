"""What the OOM killer did: its count in a process's memory cgroup (v1 or v2), and the kernel's log.

A SIGKILL says nothing of who sent it. The count grows before the kill; the log, where it may be
read, names the process a moment after.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from holdfast_sidecar.linux.cgroups import Mount, find_places, parse_mounts
from holdfast_sidecar.linux.files import read_if_any
from holdfast_sidecar.linux.kmsg import KMSG, open_log, parse_records, read_chunks

KILLED = re.compile(r"Killed process (\d+) \(")
"""In both of the kernel's sentences: "Out of memory: …" and "Memory cgroup out of memory: …"."""

RECORDS_AT_ONCE = 256
"""Records read in one look: a driver that floods the log must not hold up the sidecar."""

VICTIMS_KEPT = 64

INITIAL_NAMESPACE = "pid:[4026531836]"
"""PROC_PID_INIT_INO: the log's numbers are those of this process namespace alone."""


@dataclass
class KernelLog:
    """New records of /dev/kmsg; silent where it may not be read."""

    path: Path = KMSG
    _descriptor: int | None = None
    _is_tried: bool = False

    def read_new(self) -> Iterator[str]:
        """Messages since the last call; from the first one on, which yields none."""
        if not self._is_tried:
            self._is_tried = True
            with contextlib.suppress(OSError):
                self._descriptor = open_log(self.path)
                os.lseek(self._descriptor, 0, os.SEEK_END)
        if self._descriptor is None:
            return
        with contextlib.suppress(OSError):
            for chunk in islice(read_chunks(self._descriptor), RECORDS_AT_ONCE):
                yield from (record.text for record in parse_records(chunk or b""))


@dataclass
class OomWatch:
    """Asked about pids between two calls of `begin`, which starts a new look."""

    proc: Path = Path("/proc")
    log: KernelLog = field(default_factory=KernelLog)
    _files: dict[tuple[int, int], Path | None] = field(default_factory=dict)
    _counts: dict[Path, int | None] = field(default_factory=dict)
    _victims: list[int] = field(default_factory=list)
    _is_our_namespace: bool | None = None

    def begin(self) -> None:
        """Forget counts, take in what the log has new."""
        self._counts.clear()
        if self._is_our_namespace is None:
            self._is_our_namespace = _read_link(self.proc / "self/ns/pid") == INITIAL_NAMESPACE
        if self._is_our_namespace:
            found = [pid for message in self.log.read_new() for pid in parse_victims(message)]
            self._victims = [*self._victims, *found][-VICTIMS_KEPT:]

    def is_victim(self, pid: int) -> bool:
        """Whether the log named it lately."""
        return pid in self._victims

    def kills(self, pid: int, start_ticks: int) -> int | None:
        """The count in the memory cgroup of this process; it must be alive when it is first asked
        about. None where nobody counts."""
        process = (pid, start_ticks)
        if process not in self._files:
            self._files = dict(list(self._files.items())[-VICTIMS_KEPT:])
            self._files[process] = self._find_file(pid)
        file = self._files[process]
        if file is None:
            return None
        if file not in self._counts:
            self._counts[file] = parse_oom_kills(read_if_any(file))
        return self._counts[file]

    def _find_file(self, pid: int) -> Path | None:
        mounts = parse_mounts(read_if_any(self.proc / "self/mountinfo"))
        places = places_of(read_if_any(self.proc / str(pid) / "cgroup"), mounts)
        everywhere = self.proc / "vmstat"
        candidates = [*places, everywhere]
        return next((f for f in candidates if parse_oom_kills(read_if_any(f)) is not None), None)


def parse_oom_kills(text: str) -> int | None:
    """The count of OOM kills in /proc/vmstat, or in a file of a memory cgroup; None where the
    kernel has none."""
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        if name == "oom_kill" and value.strip().isdecimal():
            return int(value)
    return None


def parse_victims(message: str) -> list[int]:
    """Pids that this line says were killed for want of memory."""
    return [int(pid) for pid in KILLED.findall(message)]


def places_of(cgroups: str, mounts: list[Mount]) -> list[Path]:
    """Files that may hold the count for the process with this /proc/PID/cgroup, the nearest first.

    v1 counts in the cgroup of the victim alone. v2 counts in those above it too, and has the file
    only where the memory controller is handed down to.
    """
    places = find_places("memory", cgroups, mounts)
    v1 = [place.directory / "memory.oom_control" for place in places if not place.is_unified]
    v2 = [place.directory / "memory.events" for place in places if place.is_unified]
    return [*v1[:1], *v2]


def _read_link(path: Path) -> str:
    try:
        return os.readlink(path)  # noqa: PTH115 - what it says is no path
    except OSError:
        return ""
