"""Tasks that wait for something that does not answer: found by the kernel, or by us."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from holdfast_sidecar.components.host.readings import HostReading, Stuck, tally_before
from holdfast_sidecar.components.kernel_events import KernelEvents
from holdfast_sidecar.linux.files import read_if_any
from holdfast_sidecar.records.clock import Moment
from holdfast_sidecar.records.findings import Finding, Kind


def read_hung_tasks(proc: Path) -> int | None:
    """How many the kernel found since boot; None where it doesn't count (before Linux 6.13)."""
    counted = read_if_any(proc / "sys/kernel/hung_task_detect_count").strip()
    return int(counted) if counted.isdecimal() else None


@dataclass
class StuckRanks:
    """Ranks' processes in one uninterruptible wait, between looks."""

    own_proc: Path
    _waits: dict[int, tuple[str, float]] = field(default_factory=dict)

    def read(self, ranks: Mapping[int, int], now_s: float) -> tuple[Stuck, ...]:
        """`ranks`: pids by rank. One that ran in between is in another wait."""
        waits, stuck = {}, []
        for rank, pid in ranks.items():
            directory = f"{self.own_proc}/{pid}"
            if state_of(read_if_any(f"{directory}/stat")) != "D":
                continue
            turns = read_if_any(f"{directory}/schedstat").strip()
            before = self._waits.get(pid)
            since_s = before[1] if before is not None and before[0] == turns else now_s
            waits[pid] = (turns, since_s)
            if turns:
                where = read_if_any(f"{directory}/wchan").strip().strip("0")
                stuck.append(Stuck(rank, pid, now_s - since_s, where))
        self._waits = waits
        return tuple(stuck)


def state_of(stat: str) -> str:
    """The letter in /proc/PID/stat; empty of a process that is gone."""
    _, found, after = stat.rpartition(") ")
    return after[:1] if found else ""


# Tasks that wait in the kernel for something that does not answer.

STUCK_S = 60.0
"""A rank's process in one wait that no signal ends. Disks give up on a command after 30 s and the
file system then answers with an error: what waits twice as long waits for a driver or a server. The
kernel itself says so after 120 s."""

LATELY_S = 600.0
"""The kernel looks every two minutes, and tells of the first ten tasks only."""


LOGGED = ("hung_task", "")


def find_hung_tasks(
    host: HostReading, moment: Moment, logged: KernelEvents | None = None
) -> Iterator[Finding]:
    """Ranks that are stuck, and whatever else the kernel found hung of late: by its count, and by
    its log, which names the last one."""
    for stuck in host.stuck:
        if stuck.for_s >= STUCK_S:
            where = f" in {stuck.where}" if stuck.where else ""
            text = f"rank {stuck.rank} has waited in the kernel{where} for {stuck.for_s:.0f} s"
            yield _finding(moment, [text], [stuck.rank])
    hung = _hung_of_late(host)
    told = [f"the kernel found {hung} hung tasks of late"] if hung else []
    newest = None if logged is None else logged.newest.get(LOGGED)
    if newest is not None and newest.at_unix_s >= moment.now_unix_s - LATELY_S:
        told.append(newest.text)
    if told:
        yield _finding(moment, told, [])


def _hung_of_late(host: HostReading) -> int:
    before = tally_before(host, LATELY_S) or next(iter(host.earlier), None)
    if before is None or before.hung_tasks is None or host.hung_tasks is None:
        return 0
    return max(0, host.hung_tasks - before.hung_tasks)


def _finding(moment: Moment, evidence: list[str], ranks: list[int]) -> Finding:
    return Finding(Kind.HUNG_TASK, moment.node, moment.now_unix_s, 0.9, ranks, evidence)
