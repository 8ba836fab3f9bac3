"""Limits, use and throttling of the control group that the ranks are in (version 1 and 2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from holdfast_sidecar.linux.cgroups import (
    BEFORE_ANYBODY_IS_KILLED,
    Mount,
    Place,
    find_places,
    parse_mounts,
    read_counts,
    read_memory,
)
from holdfast_sidecar.linux.files import read_if_any
from holdfast_sidecar.probes.pressure import parse_pressure
from holdfast_sidecar.readings.host import Group


def read_group(proc: Path, pid: int | str) -> Group:
    """The group of this process (`self`: our own); empty where nothing is told."""
    mounts = parse_mounts(read_if_any(f"{proc}/self/mountinfo"))
    cgroups = read_if_any(f"{proc}/{pid}/cgroup")
    memory = find_places("memory", cgroups, mounts)
    allowed = read_memory(memory, BEFORE_ANYBODY_IS_KILLED)
    limit_cpus, counts, is_unified = read_quota(_of_cpu(cgroups, mounts))
    return Group(
        memory_limit_bytes=allowed.limit_bytes,
        memory_used_bytes=allowed.used_bytes,
        cpu_limit=limit_cpus,
        periods=counts.get("nr_periods"),
        throttled_periods=counts.get("nr_throttled"),
        throttled_s=parse_throttled(counts, is_unified),
        memory_stalled_10s_ratio=_read_stalls(memory),
    )


def read_cpu_limit(proc: Path, pid: int | str) -> float | None:
    """Cores that this process may use at once (`self`: our own); None: there is no quota."""
    mounts = parse_mounts(read_if_any(f"{proc}/self/mountinfo"))
    found = find_quota(_of_cpu(read_if_any(f"{proc}/{pid}/cgroup"), mounts))
    return None if found is None else found[0]


def read_quota(places: Sequence[Place]) -> tuple[float | None, dict[str, int], bool]:
    """(cores, counts of cpu.stat, whether those are of version 2) of the tightest quota."""
    found = find_quota(places)
    if found is None:
        return None, {}, True
    cores, place = found
    return cores, read_counts(place.directory / "cpu.stat"), place.is_unified


def find_quota(places: Sequence[Place]) -> tuple[float, Place] | None:
    """(cores, where) of the tightest quota; None: these groups have none."""
    found = [(_quota(place), place) for place in places]
    limited = [(quota, place) for quota, place in found if quota is not None]
    return min(limited, key=lambda pair: pair[0]) if limited else None


def parse_throttled(counts: Mapping[str, int], is_unified: bool) -> float | None:
    """Seconds that the group was throttled so far, from its cpu.stat; None: it doesn't tell."""
    throttled = counts.get("throttled_usec" if is_unified else "throttled_time")
    return None if throttled is None else throttled / (1e6 if is_unified else 1e9)


def parse_quota(cpu_max: str) -> float | None:
    """Cores out of cpu.max, or of version 1's quota and period in one line; None: no quota."""
    fields = cpu_max.split()
    if len(fields) != 2 or not (fields[0] + fields[1]).isdecimal() or int(fields[1]) == 0:
        return None
    return int(fields[0]) / int(fields[1])


def _of_cpu(cgroups: str, mounts: list[Mount]) -> list[Place]:
    return find_places("cpu", cgroups, mounts)


def _quota(place: Place) -> float | None:
    if place.is_unified:
        return parse_quota(read_if_any(place.directory / "cpu.max"))
    quota = read_if_any(place.directory / "cpu.cfs_quota_us").strip()  # -1: none
    return parse_quota(f"{quota} {read_if_any(place.directory / 'cpu.cfs_period_us')}")


def _read_stalls(places: Sequence[Place]) -> float | None:
    """Of the nearest group that tells; only version 2 does."""
    texts = (read_if_any(p.directory / "memory.pressure") for p in places if p.is_unified)
    told = next((pressure for text in texts if (pressure := parse_pressure(text))), None)
    return None if told is None else told.stalled_10s_ratio
