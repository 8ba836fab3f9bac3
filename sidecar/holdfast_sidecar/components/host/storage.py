"""Room where checkpoints, state and pages go, each asked in a thread of its own.

statvfs on a network file system whose server is away never answers. The thread that asks then waits
until it does: nobody asks a second time, and the other rooms are read on.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from holdfast_sidecar.components.host.readings import (
    FilesystemSpace,
    HostReading,
    NetworkFilesystem,
    tally_before,
)
from holdfast_sidecar.linux.cgroups import plain
from holdfast_sidecar.linux.files import list_names, read_if_any, read_text
from holdfast_sidecar.linux.probe_runner import Patient, SilentError
from holdfast_sidecar.records.findings import Finding, Kind, Moment

DEADLINE_S = 0.25
"""For each room, in the loop's own time: a local file system answers in microseconds, a network one
in milliseconds. Whoever needs longer answers at the next look."""


@dataclass(frozen=True)
class RoomProbe:
    """Of one purpose."""

    purpose: str
    path: Path

    @property
    def name(self) -> str:
        """Of its thread."""
        return f"room-{self.purpose}"

    def read(self, now_s: float) -> FilesystemSpace | None:
        """A directory that isn't there yet is measured where it would be made. OSError where the
        file system refuses."""
        return read_room(self.path)


@dataclass(frozen=True)
class FilesystemReading:
    """What the rooms said, and since when others have not."""

    rooms: Mapping[str, FilesystemSpace]
    silent: Mapping[str, float]


@dataclass
class RoomsProbe:
    """All rooms by purpose."""

    paths: Mapping[str, Path]
    name: str = "rooms"
    deadline_s: float = DEADLINE_S
    _patients: dict[str, Patient[FilesystemSpace | None]] = field(default_factory=dict)
    _asked_s: dict[str, float] = field(default_factory=dict)

    def read(self, now_s: float) -> FilesystemReading:
        """Whoever answers; a room that has never existed is left out."""
        rooms = {}
        for purpose, path in self.paths.items():
            patient = self._patients.setdefault(
                purpose, Patient(RoomProbe(purpose, path), self.deadline_s)
            )
            try:
                room = patient.read(now_s)
            except SilentError:
                self._asked_s.setdefault(purpose, now_s)
                continue
            except OSError:
                room = None
            self._asked_s.pop(purpose, None)
            if room is not None:
                rooms[purpose] = room
        return FilesystemReading(
            rooms, {purpose: now_s - at_s for purpose, at_s in self._asked_s.items()}
        )


def read_room(path: Path) -> FilesystemSpace | None:
    """One room; None when nothing of its path is there. May wait for ever; OSError."""
    existing = next((place for place in (path, *path.parents) if place.exists()), None)
    if existing is None:
        return None
    facts = os.statvfs(existing)
    return FilesystemSpace(
        size_bytes=facts.f_blocks * facts.f_frsize,
        available_bytes=facts.f_bavail * facts.f_frsize,
        files=facts.f_files or None,
        files_available=facts.f_favail if facts.f_files else None,
        device=existing.stat().st_dev,
    )


# File systems that are full, or soon will be: bytes or inodes.

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


def _shortage(room: FilesystemSpace) -> str:
    """What is short now; empty: nothing."""
    if room.size_bytes and room.available_bytes < min(ROOM_RATIO * room.size_bytes, MOST_BYTES):
        return f"{room.available_bytes / 2**20:.0f} MiB are left"
    if not room.files or room.files_available is None:
        return ""
    is_short = room.files_available < FILES_RATIO * room.files
    return f"{room.files_available} inodes of {room.files} are left" if is_short else ""


def _forecast(host: HostReading, purpose: str, room: FilesystemSpace) -> str:
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


# Network file systems that the job uses, by what their clients say of them: nobody is asked.
#
# NFS tells what it sent and got back (/proc/self/mountstats), Lustre in which state its connections
# are. Of other kinds only statvfs tells (`rooms`).

NFS = ("nfs", "nfs4")
NETWORK = (*NFS, "lustre", "cifs", "smb3", "ceph", "beegfs", "gpfs", "9p", "glusterfs")

HEALTHY = frozenset({"FULL", "IDLE", "NEW", "CLOSED"})
"""States of a Lustre import in which nothing waits for a server: connected, resting, not used."""


@dataclass(frozen=True)
class Traffic:
    """What one NFS mount sent and got so far, over all of its connections."""

    sends: int
    receives: int
    timeouts: int


@dataclass(frozen=True)
class _Wait:
    """What was sent and received when an answer last came, and since when more is owed."""

    traffic: Traffic
    since_s: float | None = None


@dataclass
class MountsProbe:
    """Of the mounts on which these paths lie; `paths` by purpose, asked at every look."""

    proc: Path
    sys: Path
    paths: Callable[[], Mapping[str, str]]
    name: str = "mounts"
    _waits: dict[str, _Wait] = field(default_factory=dict)

    def read(self, now_s: float) -> tuple[NetworkFilesystem, ...]:
        """Each network mount once. OSError where mounts can't be read at all."""
        mounts = parse_mounts(read_text(self.proc / "self/mountinfo"))
        used: dict[str, tuple[str, str]] = {}
        for purpose, path in self.paths().items():
            point, kind = find_mount(path, mounts)
            if kind in NETWORK or kind.startswith("fuse."):
                used.setdefault(point, (purpose, kind))
        is_nfs = any(kind in NFS for _, kind in used.values())
        stats = read_if_any(self.proc / "self/mountstats") if is_nfs else ""
        traffic = parse_mountstats(stats)
        self._waits = {point: wait for point, wait in self._waits.items() if point in traffic}
        return tuple(
            self._storage(point, purpose, kind, traffic.get(point), now_s)
            for point, (purpose, kind) in sorted(used.items())
        )

    def _storage(
        self, point: str, purpose: str, kind: str, traffic: Traffic | None, now_s: float
    ) -> NetworkFilesystem:
        state = read_lustre_state(self.proc, self.sys) if kind == "lustre" else ""
        if traffic is None:
            return NetworkFilesystem(purpose, kind, point, state=state)
        self._waits[point] = wait = follow(self._waits.get(point), traffic, now_s)
        silent_s = 0.0 if wait.since_s is None else now_s - wait.since_s
        return NetworkFilesystem(purpose, kind, point, silent_s, traffic.timeouts, state)


def follow(before: _Wait | None, traffic: Traffic, now_s: float) -> _Wait:
    """Something was sent since the last answer, and no answer came: it is waited for.

    Only what is sent after that counts: a connection that was made anew never gets the answers that
    the old one was owed.
    """
    if before is None or traffic.receives != before.traffic.receives:
        return _Wait(traffic)
    if traffic.sends <= before.traffic.sends:
        return before
    return _Wait(before.traffic, now_s if before.since_s is None else before.since_s)


def parse_mounts(mountinfo: str) -> list[tuple[str, str]]:
    """(mount point, kind) of each mount, in the order in which they were mounted."""
    found = []
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        fields, kind = before.split(), after.split()
        if len(fields) > 4 and kind:
            found.append((plain(fields[4]), kind[0]))
    return found


def find_mount(path: str, mounts: Iterable[tuple[str, str]]) -> tuple[str, str]:
    """(mount point, kind) of what the path lies on; what was mounted last covers the others."""
    on = [m for m in mounts if (path.rstrip("/") + "/").startswith(m[0].rstrip("/") + "/")]
    longest = max((len(point) for point, _ in on), default=0)
    return next((m for m in reversed(on) if len(m[0]) == longest), ("", ""))


def parse_mountstats(text: str) -> dict[str, Traffic]:
    """By mount point, of the NFS mounts in /proc/self/mountstats; a line of another form is
    passed over."""
    found: dict[str, Traffic] = {}
    point, is_per_operation = "", False
    for line in text.splitlines():
        fields = line.split()
        if fields[:1] == ["device"]:
            is_nfs = len(fields) > 7 and fields[7] in NFS
            point, is_per_operation = plain(fields[4]) if is_nfs else "", False
        elif fields[:2] == ["per-op", "statistics"]:
            is_per_operation = True
        elif point and fields:
            sent = _parse_connection(fields) if fields[0] == "xprt:" else (0, 0)
            timeouts = _parse_timeouts(fields) if is_per_operation else 0
            known = found.get(point, Traffic(0, 0, 0))
            found[point] = Traffic(
                known.sends + sent[0], known.receives + sent[1], known.timeouts + timeouts
            )
    return found


def read_lustre_state(proc: Path, sys: Path) -> str:
    """`name: STATE` of the first connection that is not well; empty where all are, or none may be
    read (debugfs is root's)."""
    for root in (proc / "fs/lustre", sys / "fs/lustre", sys / "kernel/debug/lustre"):
        for part, name in _imports(root):
            state = parse_import(read_if_any(f"{root}/{part}/{name}/import"))
            if state and state not in HEALTHY:
                return f"{name}: {state}"
    return ""


def parse_import(text: str) -> str:
    """The state out of a Lustre client's import file; empty where it tells none."""
    for line in text.splitlines():
        name, _, value = line.strip().partition(": ")
        if name == "state":
            return value.strip()
    return ""


def _imports(root: Path) -> Iterator[tuple[str, str]]:
    for part in ("mdc", "osc"):
        yield from ((part, name) for name in list_names(f"{root}/{part}"))


def _parse_connection(fields: list[str]) -> tuple[int, int]:
    """(sends, receives) of `xprt: tcp port binds connects connect_time idle sends receives …`."""
    if len(fields) < 9 or fields[1] not in ("tcp", "rdma"):
        return 0, 0
    sends, receives = fields[7], fields[8]
    return (int(sends), int(receives)) if (sends + receives).isdecimal() else (0, 0)


def _parse_timeouts(fields: list[str]) -> int:
    """Third number of `READ: operations transmissions timeouts …`."""
    is_one = len(fields) > 3 and fields[0].endswith(":") and fields[3].isdecimal()
    return int(fields[3]) if is_one else 0


# A file system that the job uses and that does not answer.

SILENT_S = 15.0
"""Without an answer to anything. A busy server answers late, but one after the other; a local disk
gives up on a command after 30 s and answers others meanwhile. It is told, and nothing is done."""


def find_stalled_storage(host: HostReading, moment: Moment) -> Iterator[Finding]:
    """By what clients tell of their servers, and by rooms that can't be measured."""
    stalled = {
        purpose: f"its file system has not answered for {silent_s:.0f} s"
        for purpose, silent_s in host.silent_rooms.items()
        if silent_s >= SILENT_S
    }
    stalled |= {one.purpose: text for one in host.storage if (text := _trouble(one))}
    for purpose, text in sorted(stalled.items()):
        yield Finding(
            kind=Kind.STORAGE_STALLED,
            node=moment.node,
            since_unix_s=moment.now_unix_s,
            confidence=0.9,
            evidence=[f"{purpose}: {text}"],
            what=purpose,
        )


def is_stalled(storage: NetworkFilesystem, silent_rooms: Mapping[str, float]) -> bool:
    """Whether it is in such trouble."""
    return bool(_trouble(storage)) or silent_rooms.get(storage.purpose, 0.0) >= SILENT_S


def _trouble(storage: NetworkFilesystem) -> str:
    """Empty: it fares well."""
    where = f"{storage.kind} at {storage.point}"
    if storage.silent_s >= SILENT_S:
        return f"{where} has not answered for {storage.silent_s:.0f} s"
    return f"{where}: {storage.state}" if storage.state else ""
