"""Control groups, version 1 and 2: where they are mounted, which of them a process is in, and what
their files say. Values that can't be read, or are no numbers, are absent.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from holdfast_sidecar.linux.files import read_if_any
from holdfast_sidecar.linux.kmsg import KMSG, open_log, parse_records, read_chunks

_OCTAL = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True)
class Mount:
    """Where a cgroup hierarchy is mounted, and which of its cgroups is seen there."""

    root: str
    point: Path
    is_unified: bool
    options: frozenset[str]

    def place(self, cgroup: str) -> Path:
        """The directory of this cgroup."""
        inside = self.root != "/" and (cgroup + "/").startswith(self.root + "/")
        return self.point / (cgroup[len(self.root) :] if inside else cgroup).lstrip("/")


@dataclass(frozen=True)
class CgroupPlace:
    """The directory of a cgroup that may hold a controller's files, and of which version."""

    directory: Path
    is_unified: bool


def parse_mounts(mountinfo: str) -> list[Mount]:
    """The cgroup hierarchies among the mounts of /proc/PID/mountinfo (proc(5))."""
    found = []
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        fields, kind = before.split(), after.split()
        if len(fields) > 4 and len(kind) > 2 and kind[0] in ("cgroup", "cgroup2"):
            options = frozenset(kind[2].split(","))
            point = Path(plain(fields[4]))
            found.append(Mount(plain(fields[3]), point, kind[0] == "cgroup2", options))
    return found


def find_places(controller: str, cgroups: str, mounts: Iterable[Mount]) -> list[CgroupPlace]:
    """Where the controller's files may be, of the process with this /proc/PID/cgroup: its own group
    first, then those above, whose limits count too.

    Where both versions are mounted, the one that has the controller is version 1.
    """
    mounts = list(mounts)
    old, new = [], []
    for line in cgroups.splitlines():
        number, controllers, cgroup = (*line.split(":", 2), "", "")[:3]
        if controller in controllers.split(","):
            v1 = (m for m in mounts if not m.is_unified and controller in m.options)
            old += [CgroupPlace(at, False) for mount in v1 for at in _upwards(mount, cgroup)]
        elif number == "0" and not controllers:
            v2 = (m for m in mounts if m.is_unified)
            new += [CgroupPlace(at, True) for mount in v2 for at in _upwards(mount, cgroup)]
    return [*old, *new]


def plain(field: str) -> str:
    """A path as mountinfo and mountstats write it, with blanks written out."""
    return _OCTAL.sub(lambda found: chr(int(found[1], 8)), field)


def read_counts(file: Path) -> dict[str, int]:
    """A file of `name value` lines; what is no number is left out."""
    pairs = (line.split() for line in read_if_any(file).splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdecimal()}


def _upwards(mount: Mount, cgroup: str) -> Iterator[Path]:
    nearest = mount.place(cgroup)
    yield nearest
    yield from (above for above in nearest.parents if above.is_relative_to(mount.point))


# Memory of control groups, version 1 and 2: what they allow a process, and how much is taken.
#
# A limit may be set on any group above: the one with the least left counts.

UNLIMITED = 2**60
"""Version 1 says "no limit" with a number near 2**63; nobody has an exbibyte."""


@dataclass(frozen=True)
class GivenBack:
    """Entries of `memory.stat` that a reader doesn't count as taken."""

    v1: tuple[str, ...]
    v2: tuple[str, ...]


AT_ONCE = GivenBack(("total_inactive_file",), ("inactive_file",))
"""What can be given back at once: the cache of files read once."""

BEFORE_ANYBODY_IS_KILLED = GivenBack(
    ("total_inactive_file", "total_active_file"),
    ("inactive_file", "active_file", "slab_reclaimable"),
)
"""What the kernel takes back before it kills anybody."""


@dataclass(frozen=True)
class GroupMemory:
    """Of the group with the least left; without a limit, of the nearest."""

    limit_bytes: int | None = None
    used_bytes: int | None = None

    @property
    def free_bytes(self) -> int | None:
        """What may still be taken; None without a limit."""
        if self.limit_bytes is None or self.used_bytes is None:
            return None
        return self.limit_bytes - self.used_bytes


def read_memory(places: Sequence[CgroupPlace], given_back: GivenBack) -> GroupMemory:
    """Of these groups, the nearest first; empty where nothing is told."""
    known = [_read_one(place, given_back) for place in places]
    limited = [(one.free_bytes, one) for one in known if one.free_bytes is not None]
    if limited:
        return min(limited, key=lambda pair: pair[0])[1]
    return GroupMemory(None, next((o.used_bytes for o in known if o.used_bytes is not None), None))


def _read_one(place: CgroupPlace, given_back: GivenBack) -> GroupMemory:
    at = place.directory
    if place.is_unified:
        used = _read_used(at / "memory.current", given_back.v2)
        return GroupMemory(_read_limit(at / "memory.max"), used)
    used = _read_used(at / "memory.usage_in_bytes", given_back.v1)
    return GroupMemory(_read_limit(at / "memory.limit_in_bytes"), used)


def _read_limit(file: Path) -> int | None:
    """In bytes; None without one."""
    text = read_if_any(file).strip()
    limit = int(text) if text.isdecimal() else UNLIMITED
    return limit if limit < UNLIMITED else None


def _read_used(file: Path, given_back: Iterable[str]) -> int | None:
    text = read_if_any(file).strip()
    if not text.isdecimal():
        return None
    stat = read_counts(file.parent / "memory.stat")
    return max(0, int(text) - sum(stat.get(name, 0) for name in given_back))


# What the OOM killer did: its count in a process's memory cgroup (v1 or v2), and the kernel's log.
#
# A SIGKILL says nothing of who sent it. The count grows before the kill; the log, where it may be
# read, names the process a moment after.

KILLED = re.compile(r"Killed process (\d+) \(")
"""In both of the kernel's sentences: "Out of memory: …" and "Memory cgroup out of memory: …"."""

RECORDS_AT_ONCE = 256
"""Records read in one look: a driver that floods the log must not hold up the sidecar."""

VICTIMS_KEPT = 64

INITIAL_NAMESPACE = "pid:[4026531836]"
"""PROC_PID_INIT_INO: the log's numbers are those of this process namespace alone."""


@dataclass
class KernelLogReader:
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
    log: KernelLogReader = field(default_factory=KernelLogReader)
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
