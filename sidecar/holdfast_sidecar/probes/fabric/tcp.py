"""Segments that the ranks' own TCP connections had to send again.

Only of ranks in this sidecar's network namespace: the kernel tells of no other without privilege.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from holdfast_sidecar.kernel_files import read_if_any
from holdfast_sidecar.probes.fabric.inet_diag import Connection, read_connections
from holdfast_sidecar.probes.sockets import read_socket_inodes
from holdfast_sidecar.readings.fabric import TcpReading

EVERY_S = 10.0
"""A rank has some hundred open files, and a node thousands of sockets: 5 ms each time."""


@dataclass
class _Tally:
    """What one rank's process has sent again, over sockets that have come and gone."""

    pid: int
    total: int = 0
    counts: dict[int, int] = field(default_factory=dict)
    """Cookie -> as last told."""

    def count(self, connections: Iterable[Connection]) -> None:
        now = {one.cookie: one.retransmits for one in connections}
        self.total += sum(max(0, told - self.counts.get(one, 0)) for one, told in now.items())
        self.counts = now


@dataclass
class TcpProbe:
    """`ranks` tells rank -> pid. Processes are found in our own /proc, as sockets are."""

    ranks: Callable[[], Mapping[int, int]]
    proc: Path = Path("/proc")
    read_connections: Callable[[], Mapping[int, Connection]] = read_connections
    name: str = "tcp"
    _tallies: dict[int, _Tally] = field(default_factory=dict)

    def read(self, now_s: float) -> TcpReading:
        """What is known of the ranks that can be looked at. Raises OSError where none can."""
        of_host = parse_retransmits(read_if_any(self.proc / "net/snmp"))
        ranks = {rank: pid for rank, pid in self.ranks().items() if self._is_near(pid)}
        self._tallies = {
            rank: tally for rank, tally in self._tallies.items() if ranks.get(rank) == tally.pid
        }
        if not ranks:
            return TcpReading(of_host=of_host)
        connections = self.read_connections()
        for rank, pid in ranks.items():
            self._count(rank, pid, connections)
        return TcpReading({rank: tally.total for rank, tally in self._tallies.items()}, of_host)

    def _count(self, rank: int, pid: int, connections: Mapping[int, Connection]) -> None:
        try:
            inodes = read_socket_inodes(self.proc / str(pid) / "fd")
        except OSError:
            return  # another user's, or gone: what was counted stands
        tally = self._tallies.setdefault(rank, _Tally(pid))
        tally.count(connections[int(one)] for one in inodes if int(one) in connections)

    def _is_near(self, pid: int) -> bool:
        try:
            theirs = (self.proc / str(pid) / "ns/net").readlink()
            return theirs == (self.proc / "self/ns/net").readlink()
        except OSError:
            return False


def parse_retransmits(snmp: str) -> int | None:
    """RetransSegs of /proc/net/snmp: a line of names, then one of values, per protocol."""
    lines = [line.split() for line in snmp.splitlines() if line.startswith("Tcp:")]
    if len(lines) != 2:
        return None
    values = dict(zip(*lines, strict=False))
    told = values.get("RetransSegs", "")
    return int(told) if told.isascii() and told.isdecimal() else None
