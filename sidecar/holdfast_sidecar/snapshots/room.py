"""How much memory is free for snapshots: shared memory, the machine, and its control groups."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from holdfast_sidecar.control_groups import read_limit, read_used
from holdfast_sidecar.decisions.memory import Room
from holdfast_sidecar.kernel_files import read_if_any


@dataclass(frozen=True)
class RoomReader:
    """Where to look; the defaults are this machine."""

    shared_memory: Path
    reserve_bytes: int
    proc: Path = Path("/proc")
    groups: Path = Path("/sys/fs/cgroup")

    def read(self, held_bytes: int) -> Room:
        """The room there is. `held_bytes`: what snapshots take of it already. Raises OSError."""
        facts = os.statvfs(self.shared_memory)
        reserve_bytes = least_reserve(facts.f_blocks * facts.f_frsize, self.reserve_bytes)
        group = free_in_groups(self.proc / "self" / "cgroup", self.groups)
        return Room(
            shared_memory=facts.f_bavail * facts.f_frsize + held_bytes - reserve_bytes,
            memory=parse_available((self.proc / "meminfo").read_text()) + held_bytes,
            control_group=None if group is None else group + held_bytes,
        )


def is_small(size_bytes: int, reserve_bytes: int) -> bool:
    """Whether a file system is no room for what shall be left free in it, and as much again."""
    return size_bytes < 2 * reserve_bytes


def least_reserve(size_bytes: int, reserve_bytes: int) -> int:
    """What to leave free in a file system of this size: of a small one half. Those who need more of
    it (DataLoader workers, gloo) would run out of it without us as well."""
    return size_bytes // 2 if is_small(size_bytes, reserve_bytes) else reserve_bytes


def parse_available(meminfo: str) -> int:
    """MemAvailable of /proc/meminfo, bytes; 0 when it isn't told."""
    for line in meminfo.splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0


def free_in_groups(membership: Path, root: Path) -> int | None:
    """What the tightest of this process's control groups still allows; None without a limit.

    A limit may be set on any group above: the least of all counts. Inside a container the path is
    often not visible, and the group's own files lie at the root.
    """
    free = [
        limit - used
        for kind, path in parse_membership(read_if_any(membership))
        for directory in _upwards(root / "memory" if kind == "v1" else root, path)
        if (limit := read_limit(directory / _LIMIT[kind])) is not None
        and (used := read_used(directory / _USED[kind], [_CACHE[kind]])) is not None
    ]
    return min(free, default=None)


def parse_membership(text: str) -> list[tuple[str, str]]:
    """(`v1` or `v2`, path) of the groups that may limit memory, out of /proc/self/cgroup."""
    found = []
    for line in text.splitlines():
        number, controllers, path = [*line.split(":", 2), "", ""][:3]
        if number == "0" and not controllers:
            found.append(("v2", path))
        elif "memory" in controllers.split(","):
            found.append(("v1", path))
    return found


def _upwards(root: Path, path: str) -> Iterator[Path]:
    """The group's directory and all above it, down to the root."""
    parts = [part for part in path.split("/") if part not in ("", "..")]
    for depth in range(len(parts), -1, -1):
        yield root.joinpath(*parts[:depth])


_LIMIT = {"v1": "memory.limit_in_bytes", "v2": "memory.max"}
_USED = {"v1": "memory.usage_in_bytes", "v2": "memory.current"}
_CACHE = {"v1": "total_inactive_file", "v2": "inactive_file"}
"""What can be given back at once: the cache of files read once."""
