"""Network file systems that the job uses, by what their clients say of them: nobody is asked.

NFS tells what it sent and got back (/proc/self/mountstats), Lustre in which state its connections
are. Of other kinds only statvfs tells (`rooms`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from holdfast_sidecar.linux.cgroups import plain
from holdfast_sidecar.linux.files import list_names, read_if_any, read_text
from holdfast_sidecar.readings.host import Storage

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

    def read(self, now_s: float) -> tuple[Storage, ...]:
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
    ) -> Storage:
        state = read_lustre_state(self.proc, self.sys) if kind == "lustre" else ""
        if traffic is None:
            return Storage(purpose, kind, point, state=state)
        self._waits[point] = wait = follow(self._waits.get(point), traffic, now_s)
        silent_s = 0.0 if wait.since_s is None else now_s - wait.since_s
        return Storage(purpose, kind, point, silent_s, traffic.timeouts, state)


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
