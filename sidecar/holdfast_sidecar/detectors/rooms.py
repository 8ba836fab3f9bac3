"""File systems that are full, or soon will be: bytes or inodes."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast_sidecar.readings.host import HostReading, Room, tally_before
from holdfast_sidecar.records.clock import Moment
from holdfast_sidecar.records.findings import Finding, Kind

ROOM_RATIO = 0.05
MOST_BYTES = 64 * 2**30
"""File systems slow down and saves begin to fail before the last byte is written. Of a large one a
twentieth is room for many checkpoints yet: no more than this is asked to be free."""

FILES_RATIO = 0.03
"""Of inodes. Each checkpoint takes as many files as there are ranks and a few, not a share."""

FORECAST_S = 1800.0
LEAST_KNOWN_S = 600.0
NARROW_RATIO = 0.2
"""Full within half an hour at the rate of the last one: two checkpoints at the usual interval, and
time for somebody to act. Told only where less than a fifth is left: builds and caches fill disks
for a while and stop, and of a file system that is half empty that is the likelier story."""

FORECAST_FOR = ("checkpoint", "state")
"""Shared memory is filled in one go, by plan."""


def find_full_rooms(host: HostReading, moment: Moment) -> Iterator[Finding]:
    """One finding for each file system in trouble. The checkpoints' room comes first: where state
    lies on the same one, a checkpoint that is made for want of room would take the rest."""
    told: set[int] = set()
    for purpose, room in sorted(host.rooms.items()):
        if room.device is not None and room.device in told:
            continue
        text = _shortage(room) or _forecast(host, purpose, room)
        if text:
            told |= set() if room.device is None else {room.device}
            yield Finding(
                kind=Kind.DISK_FULL,
                node=moment.node,
                since_unix_s=moment.now_unix_s,
                confidence=0.9,
                evidence=[f"{purpose}: {text}"],
                what=purpose,
            )


def find_unwritable_state(obstacle: str, moment: Moment) -> list[Finding]:
    """State that can't be written: a quota shows only when it is tried. `obstacle`: what trying
    came to, and where; empty: nothing is in the way."""
    if not obstacle:
        return []
    return [
        Finding(
            kind=Kind.DISK_FULL,
            node=moment.node,
            since_unix_s=moment.now_unix_s,
            confidence=0.95,
            evidence=[f"state: {obstacle}"],
            what="fence",
        )
    ]


def _shortage(room: Room) -> str:
    """What is short now; empty: nothing."""
    if room.size_bytes and room.available_bytes < min(ROOM_RATIO * room.size_bytes, MOST_BYTES):
        return f"{room.available_bytes / 2**20:.0f} MiB are left"
    if not room.files or room.files_available is None:
        return ""
    is_short = room.files_available < FILES_RATIO * room.files
    return f"{room.files_available} inodes of {room.files} are left" if is_short else ""


def _forecast(host: HostReading, purpose: str, room: Room) -> str:
    """When it will be full at the rate of late, where that is soon; empty: not soon."""
    if purpose not in FORECAST_FOR or room.available_bytes >= NARROW_RATIO * room.size_bytes:
        return ""
    before = tally_before(host, FORECAST_S) or tally_before(host, LEAST_KNOWN_S)
    if before is None or host.now is None or purpose not in before.available:
        return ""
    rate = (before.available[purpose] - room.available_bytes) / (host.now.at_s - before.at_s)
    if rate <= 0 or room.available_bytes / rate >= FORECAST_S:
        return ""
    return f"full in {room.available_bytes / rate / 60:.0f} min at the rate of late"
