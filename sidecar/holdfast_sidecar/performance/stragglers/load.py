"""What kept one rank's process busy or waiting, beside its own steps: from counters that only grow.

Nothing here is about a step: it is what its line says of the time in which the steps ran.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from holdfast_sidecar.components.gpu.history import clock_ratios
from holdfast_sidecar.components.gpu.ownership import GpuOwnership
from holdfast_sidecar.components.host.readings import HostReading
from holdfast_sidecar.components.machine import MachineReading
from holdfast_sidecar.ranks.observation import RankLook

LEAST_S = 1.0
"""CPU time is told in ticks of 10 ms: over a second that is one percent of a core."""


class Counts(NamedTuple):
    """What was counted of a process so far; None: nobody counts it."""

    at_s: float
    cpu_s: float
    queued_s: float | None = None
    """Its main thread was ready to run, and had no CPU."""
    throttled_s: float | None = None
    """Its control group had used up its quota."""
    major_faults: int = 0


class Load(NamedTuple):
    """The fields of a step line that say it, as in `records.steps`; 0: nothing, or not known."""

    cpu_permille: int = 0
    queued_permille: int = 0
    throttled_permille: int = 0
    faults_per_s: int = 0
    storage_permille: int = 0
    clock_permille: int = 0


class NodeLoad(NamedTuple):
    """What is told of more than one process. Shares are parts of one."""

    storage: float = 0.0
    """Of the time, tasks of the node waited for storage."""
    clock: float | None = None
    """The clock of the rank's GPU against what it could be; None: it has none, or is not known."""


@dataclass
class Meter:
    """One rank's counters, from line to line."""

    _since: Counts | None = None
    _newest: Counts | None = None
    _load: Load = Load()  # noqa: RUF009 - a tuple of numbers

    def note(self, counts: Counts | None) -> None:
        """One more look at them; None: they could not be read."""
        if counts is not None:
            self._since = self._since or counts
            self._newest = counts

    def read(self, around: NodeLoad) -> Load:
        """The load since the line before, over a second at least: blocks may be shorter."""
        since, newest = self._since, self._newest
        if since is not None and newest is not None and newest.at_s - since.at_s >= LEAST_S:
            self._load, self._since = load_between(since, newest), newest
        return self._load._replace(
            storage_permille=_permille(around.storage),
            clock_permille=0 if around.clock is None else max(1, _permille(around.clock)),
        )


def load_between(before: Counts, after: Counts) -> Load:
    """What the process alone is responsible for, or suffers from."""
    span_s = after.at_s - before.at_s
    throttled_s = _grown(before.throttled_s, after.throttled_s)
    # Whoever is throttled stands in the queue as well, though not for want of a CPU.
    queued_s = _grown(before.queued_s, after.queued_s) - throttled_s
    return Load(
        # None at all is told as next to none: 0 says that nobody knows.
        cpu_permille=max(1, round(1000 * (after.cpu_s - before.cpu_s) / span_s)),
        queued_permille=_permille(queued_s / span_s),
        # The kernel adds up the throttled time of all CPUs on which the group ran.
        throttled_permille=_permille(throttled_s / span_s),
        faults_per_s=max(0, round((after.major_faults - before.major_faults) / span_s)),
    )


def _grown(before: float | None, after: float | None) -> float:
    """Counts that went backwards are another group's."""
    return 0.0 if before is None or after is None else max(0.0, after - before)


def _permille(share: float) -> int:
    return round(1000 * min(1.0, max(0.0, share)))


# What is known of the processes of this node's ranks beside their steps. Pure.

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def count(looks: Iterable[RankLook], machine: MachineReading) -> dict[int, Counts]:
    """What was counted of each rank's process so far; those that can't be seen are left out."""
    return {
        look.rank: Counts(
            at_s=look.at_s,
            cpu_s=look.process.cpu_ticks / TICKS_PER_S,
            queued_s=None
            if look.process.main_thread_queued_ns is None
            else look.process.main_thread_queued_ns / 1e9,
            throttled_s=machine.throttled_s.get(look.rank),
            major_faults=look.process.major_faults,
        )
        for look in looks
        if look.process is not None
    }


def surround(
    looks: Iterable[RankLook], machine: MachineReading, gpus: GpuOwnership
) -> dict[int, NodeLoad]:
    """What is around each rank."""
    storage = storage_share(machine.host)
    clocks = clock_ratios(machine.gpu, gpus)
    return {look.rank: NodeLoad(storage, clocks.get(look.rank)) for look in looks}


def storage_share(host: HostReading | None) -> float:
    """Of the latest ten seconds, tasks of this node waited for storage; 0 where nothing tells."""
    pressure = None if host is None else host.pressure.get("io")
    return 0.0 if pressure is None else pressure.waiting_10s_ratio
