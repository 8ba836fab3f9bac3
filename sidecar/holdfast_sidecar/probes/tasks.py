"""Tasks that wait for something that does not answer: found by the kernel, or by us."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from holdfast_sidecar.linux.files import read_if_any
from holdfast_sidecar.readings.host import Stuck


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
