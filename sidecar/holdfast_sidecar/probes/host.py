"""The host: load, memory, pressure, and room where checkpoints and pages go."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from holdfast_sidecar.probes.oom import parse_oom_kills
from holdfast_sidecar.readings.host import HostReading, Pressure, Room

RESOURCES = ("cpu", "io", "memory")


@dataclass
class HostProbe:
    """Reads through psutil, /proc/pressure and statvfs."""

    rooms: Mapping[str, Path]
    proc: Path = Path("/proc")
    name: str = "host"

    def read(self, now_s: float) -> HostReading:
        """The host now."""
        memory = psutil.virtual_memory()
        times = psutil.cpu_times()
        modes = ("user", "system", "idle", "iowait", "steal")
        return HostReading(
            cpu_s={mode: float(getattr(times, mode, 0.0)) for mode in modes},
            cpus=len(os.sched_getaffinity(0)),
            load_1m=os.getloadavg()[0],
            memory_size_bytes=memory.total,
            memory_available_bytes=memory.available,
            swap_used_bytes=psutil.swap_memory().used,
            boot_unix_s=psutil.boot_time(),
            pressure=read_pressures(self.proc / "pressure"),
            rooms=read_rooms(self.rooms),
            oom_kills=parse_oom_kills(_read(self.proc / "vmstat")),
        )


def read_pressures(directory: Path) -> dict[str, Pressure]:
    """Pressure by resource, as far as the kernel tells."""
    parsed = {name: parse_pressure(_read(directory / name)) for name in RESOURCES}
    return {name: pressure for name, pressure in parsed.items() if pressure is not None}


def parse_pressure(text: str) -> Pressure | None:
    """Parse a file of /proc/pressure; None when it says nothing. Totals there are microseconds."""
    lines = {}
    for line in text.splitlines():
        kind, *fields = line.split()
        lines[kind] = dict(item.split("=", 1) for item in fields)
    some, full = lines.get("some"), lines.get("full")
    if some is None:
        return None
    return Pressure(
        waiting_s=int(some["total"]) / 1e6,
        stalled_s=None if full is None else int(full["total"]) / 1e6,
        waiting_10s_ratio=float(some["avg10"]) / 100,
        stalled_10s_ratio=None if full is None else float(full["avg10"]) / 100,
    )


def read_rooms(paths: Mapping[str, Path]) -> dict[str, Room]:
    """Room by purpose. A directory that isn't there yet is measured where it would be made."""
    rooms = {}
    for purpose, path in paths.items():
        existing = next((place for place in (path, *path.parents) if place.exists()), None)
        if existing is not None:
            facts = os.statvfs(existing)
            rooms[purpose] = Room(facts.f_blocks * facts.f_frsize, facts.f_bavail * facts.f_frsize)
    return rooms


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
