"""A host in trouble: memory all but gone or everyone waiting for it, or no room to save to."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast_sidecar.findings import Finding, Kind
from holdfast_sidecar.observation import Moment
from holdfast_sidecar.readings.host import HostReading

STALLED_RATIO = 0.1
"""A tenth of all time in which every task waits for memory: the host thrashes, and the OOM killer
is near. Reclaim on a busy but healthy host stays below a percent."""

AVAILABLE_RATIO = 0.03
"""Page cache counts as available, so a host this low has nothing left to give."""

ROOM_RATIO = 0.05
"""File systems slow down and saves begin to fail before the last byte is written."""


def find_host_troubles(host: HostReading | None, moment: Moment) -> Iterator[Finding]:
    """Memory pressure and full disks of this node."""
    if host is None:
        return
    memory = host.pressure.get("memory")
    if memory is not None and (memory.stalled_10s_ratio or 0.0) >= STALLED_RATIO:
        text = f"all tasks waited for memory {memory.stalled_10s_ratio:.0%} of the last 10 s"
        yield _finding(Kind.MEMORY_PRESSURE, moment, text)
    elif host.memory_available_bytes < AVAILABLE_RATIO * host.memory_size_bytes:
        text = f"{host.memory_available_bytes / 2**20:.0f} MiB of memory are left"
        yield _finding(Kind.MEMORY_PRESSURE, moment, text)
    for purpose, room in sorted(host.rooms.items()):
        if room.size_bytes and room.available_bytes < ROOM_RATIO * room.size_bytes:
            text = f"{purpose}: {room.available_bytes / 2**20:.0f} MiB are left"
            yield _finding(Kind.DISK_FULL, moment, text, purpose)


def _finding(kind: Kind, moment: Moment, text: str, what: str = "") -> Finding:
    return Finding(kind, moment.node, moment.now_unix_s, 0.9, evidence=[text], what=what)
