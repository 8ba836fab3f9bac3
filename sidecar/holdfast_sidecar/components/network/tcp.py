"""Segments that the ranks' own TCP connections had to send again.

Only of ranks in this sidecar's network namespace: the kernel tells of no other without privilege.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from holdfast_sidecar.components.network.readings import TcpReading
from holdfast_sidecar.linux.files import read_if_any
from holdfast_sidecar.linux.sockets import Connection, read_connections, read_socket_inodes

EVERY_S = 10.0
"""The kernel answers in 10 us a socket."""

LOOK_EVERY_S = 30.0
"""Whose a new socket is takes a look at every open file of every rank, 3 us each: a rank has
hundreds. Those that train have had theirs since they began."""


@dataclass
class _Tally:
    """What one rank's process has sent again, over sockets that have come and gone."""

    pid: int
    total: int = 0
    cookies: frozenset[int] = frozenset()
    """Its sockets."""
    counts: dict[int, int] = field(default_factory=dict)
    """Cookie -> as last told."""

    def count(self, connections: Mapping[int, Connection]) -> None:
        told = {
            one.cookie: one.retransmits
            for one in connections.values()
            if one.cookie in self.cookies
        }
        self.total += sum(max(0, now - self.counts.get(one, 0)) for one, now in told.items())
        self.counts = told


@dataclass
class TcpProbe:
    """`ranks` tells rank -> pid. Processes are found in our own /proc, as sockets are."""

    ranks: Callable[[], Mapping[int, int]]
    proc: Path = Path("/proc")
    read_connections: Callable[[], Mapping[int, Connection]] = read_connections
    name: str = "tcp"
    _tallies: dict[int, _Tally] = field(default_factory=dict)
    _known: frozenset[int] = frozenset()
    """Cookies of all sockets that were there at the last look at open files."""
    _looked_at: Mapping[int, int] = field(default_factory=dict)
    """Rank -> pid, as of that look."""
    _look_due_s: float = float("-inf")

    def read(self, now_s: float) -> TcpReading:
        """What is known of the ranks that can be looked at. Raises OSError where none can."""
        of_host = parse_retransmits(read_if_any(self.proc / "net/snmp"))
        ranks = {rank: pid for rank, pid in self.ranks().items() if self._is_near(pid)}
        if not ranks:
            self._tallies, self._looked_at = {}, {}
            return TcpReading(of_host=of_host)
        connections = self.read_connections()
        self._assign(ranks, connections, now_s)
        for tally in self._tallies.values():
            tally.count(connections)
        return TcpReading({rank: tally.total for rank, tally in self._tallies.items()}, of_host)

    def _assign(
        self, ranks: Mapping[int, int], connections: Mapping[int, Connection], now_s: float
    ) -> None:
        """Find out whose sockets they are, where some are new."""
        cookies = frozenset(one.cookie for one in connections.values())
        if ranks == self._looked_at and (cookies <= self._known or now_s < self._look_due_s):
            return
        self._look_due_s, self._known, self._looked_at = now_s + LOOK_EVERY_S, cookies, ranks
        kept = {rank: one for rank, one in self._tallies.items() if ranks.get(rank) == one.pid}
        for rank, pid in ranks.items():
            try:
                inodes = read_socket_inodes(self.proc / str(pid) / "fd")
            except OSError:
                continue  # another user's, or gone: what was counted stands
            tally = kept.setdefault(rank, _Tally(pid))
            tally.cookies = frozenset(
                connections[int(one)].cookie for one in inodes if int(one) in connections
            )
        self._tallies = kept

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
