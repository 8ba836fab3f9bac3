"""How much memory is free for snapshots: shared memory, the machine, and its control groups."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from holdfast_sidecar.linux.cgroups import (
    AT_ONCE,
    BEFORE_ANYBODY_IS_KILLED,
    GivenBack,
    GroupMemory,
    find_places,
    parse_mounts,
    read_memory,
)
from holdfast_sidecar.linux.files import read_if_any
from holdfast_sidecar.policy.replication import Margin, Room
from holdfast_sidecar.snapshots.slot_memory import SlotMemory


@dataclass(frozen=True)
class RoomReader:
    """Where to look; the defaults are this machine."""

    shared_memory: Path
    reserve_bytes: int
    proc: Path = Path("/proc")
    memory: SlotMemory | None = None
    """What slots are made of: without names they take no room in `shared_memory`."""

    def read(self, held_bytes: int) -> Room:
        """The room there is. `held_bytes`: what snapshots take of it already. Raises OSError."""
        has_names = self.memory is None or self.memory.has_names
        group = free_in_groups(self.proc / "self")
        return Room(
            shared_memory=self._free_in_files() + held_bytes if has_names else None,
            memory=parse_available((self.proc / "meminfo").read_text()) + held_bytes,
            control_group=None if group is None else group + held_bytes,
        )

    def read_margin(self) -> Margin | None:
        """What is left to the job; None where the kernel doesn't tell. Raises OSError."""
        meminfo = (self.proc / "meminfo").read_text()
        free, limit = parse_available(meminfo), parse_entry(meminfo, "MemTotal")
        if not free or not limit:
            return None
        group = _read_groups(self.proc / "self", BEFORE_ANYBODY_IS_KILLED)
        if group.free_bytes is None or group.limit_bytes is None:
            return Margin(free, limit)
        return Margin(min(free, group.free_bytes), min(limit, group.limit_bytes))

    def _free_in_files(self) -> int:
        facts = os.statvfs(self.shared_memory)
        reserve_bytes = least_reserve(facts.f_blocks * facts.f_frsize, self.reserve_bytes)
        return facts.f_bavail * facts.f_frsize - reserve_bytes


def is_small(size_bytes: int, reserve_bytes: int) -> bool:
    """Whether a file system is no room for what shall be left free in it, and as much again."""
    return size_bytes < 2 * reserve_bytes


def least_reserve(size_bytes: int, reserve_bytes: int) -> int:
    """What to leave free in a file system of this size: of a small one half. Those who need more of
    it (DataLoader workers, gloo) would run out of it without us as well."""
    return size_bytes // 2 if is_small(size_bytes, reserve_bytes) else reserve_bytes


def parse_available(meminfo: str) -> int:
    """MemAvailable of /proc/meminfo, bytes; 0 when it isn't told."""
    return parse_entry(meminfo, "MemAvailable")


def parse_entry(meminfo: str, name: str) -> int:
    """A line of /proc/meminfo, bytes; 0 when it isn't there."""
    for line in meminfo.splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    return 0


def free_in_groups(process: Path) -> int | None:
    """What the tightest of the control groups of this process (its directory in /proc) still
    allows; None without a limit."""
    return _read_groups(process, AT_ONCE).free_bytes


def _read_groups(process: Path, given_back: GivenBack) -> GroupMemory:
    """Inside a container the path of its own group is often not visible, and the group's files lie
    where the hierarchy is mounted."""
    mounts = parse_mounts(read_if_any(process / "mountinfo"))
    places = find_places("memory", read_if_any(process / "cgroup"), mounts)
    return read_memory(places, given_back)
