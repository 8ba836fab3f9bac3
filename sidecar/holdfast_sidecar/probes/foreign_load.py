"""CPU time that went to processes outside of the job: what the host spent less what the job did."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from holdfast_sidecar.linux.files import read_if_any
from holdfast_sidecar.probes.processors import TICKS_PER_S, Processors

MOST_PROCESSES = 512
"""Looked at when the job's time is summed up: eight ranks with sixteen loader workers each, and
more."""

SPAN_S = 4.0
"""Times are told in ticks of 10 ms: over a shorter span their rounding would show."""


@dataclass(frozen=True)
class Spent:
    """CPU seconds so far, at one time."""

    at_s: float
    host_s: float
    job_s: float


@dataclass
class ForeignLoad:
    """Compares two looks. Where a rank came or went between them nothing is said."""

    own_proc: Path
    _before: Spent | None = None
    _pids: frozenset[int] = frozenset()
    _cores: float | None = None

    def read(self, host: Processors, ranks: Mapping[int, int], now_s: float) -> float | None:
        """Cores' worth of late; None before two looks, and without ranks."""
        if not ranks:
            self._before = self._cores = None
            return None
        if self._before is not None and now_s - self._before.at_s < SPAN_S:
            return self._cores
        spent = Spent(now_s, host.busy_s, self._job_s(ranks))
        pids = frozenset(ranks.values())
        before = self._before if pids == self._pids else None
        self._before, self._pids = spent, pids
        self._cores = None if before is None else foreign_cores(before, spent)
        return self._cores

    def _job_s(self, ranks: Mapping[int, int]) -> float:
        """Of the ranks and of what they started, those of them that ended included."""
        waiting, total_s = list(ranks.values()), 0.0
        seen: set[int] = set()
        while waiting and len(seen) < MOST_PROCESSES:
            pid = waiting.pop()
            if pid not in seen:
                seen.add(pid)
                total_s += cpu_s_of(read_if_any(f"{self.own_proc}/{pid}/stat"))
                children = read_if_any(f"{self.own_proc}/{pid}/task/{pid}/children")
                waiting += [int(child) for child in children.split() if child.isdecimal()]
        return total_s


def foreign_cores(before: Spent, now: Spent) -> float | None:
    """None where a count went backwards: a process of the job went without being waited for."""
    host_s, job_s = now.host_s - before.host_s, now.job_s - before.job_s
    if host_s < 0 or job_s < 0 or now.at_s <= before.at_s:
        return None
    return max(0.0, host_s - job_s) / (now.at_s - before.at_s)


def cpu_s_of(stat: str) -> float:
    """CPU seconds of a process and its children that were waited for; 0 of one that is gone."""
    times = stat.rpartition(") ")[2].split()[11:15]
    if len(times) < 4 or not all(time.isdecimal() for time in times):
        return 0.0
    return sum(map(int, times)) / TICKS_PER_S
