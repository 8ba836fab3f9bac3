"""Tasks that wait for something that does not answer: found by the kernel, or by us."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from holdfast_sidecar.kernel_files import read_if_any
from holdfast_sidecar.probes.oom import KernelLog
from holdfast_sidecar.readings.host import Stuck

HUNG = "blocked for more than "
"""In the kernel's sentence `INFO: task NAME:PID blocked for more than N seconds.`"""


@dataclass
class HungTasks:
    """Counts those that the kernel found: by its own count (Linux 6.13), else by its log."""

    proc: Path
    log: KernelLog
    _named: int = 0

    def read(self) -> int | None:
        """How many so far; None where neither is told."""
        counted = read_if_any(self.proc / "sys/kernel/hung_task_detect_count").strip()
        if counted.isdecimal():
            return int(counted)
        self._named += sum(is_hung_task(message) for message in self.log.read_new())
        return self._named if self.log.is_readable else None


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


def is_hung_task(message: str) -> bool:
    """Whether this line of the kernel's log tells of one."""
    return message.startswith("INFO: task ") and HUNG in message


def state_of(stat: str) -> str:
    """The letter in /proc/PID/stat; empty of a process that is gone."""
    _, found, after = stat.rpartition(") ")
    return after[:1] if found else ""
