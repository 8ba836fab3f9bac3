"""CPU time and load of the host, from /proc/stat and /proc/loadavg."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass

MODES = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
TOLD = ("user", "system", "idle", "iowait", "steal")

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Processors:
    """CPU seconds since boot by mode, and when that was (unix time)."""

    cpu_s: Mapping[str, float]
    boot_unix_s: float

    @property
    def busy_s(self) -> float:
        """In which processes of ours ran; what another guest of the machine took is not in it."""
        return sum(self.cpu_s.get(mode, 0.0) for mode in ("user", "system"))


def parse_stat(text: str) -> Processors:
    """Parse /proc/stat; `user` has the nice ones in it. ValueError where it is no such file."""
    cpu_s, boot_unix_s = {}, None
    for line in text.splitlines():
        name, _, rest = line.partition(" ")
        if name == "cpu":
            cpu_s = {
                mode: int(ticks) / TICKS_PER_S
                for mode, ticks in zip(MODES, rest.split(), strict=False)
            }
        elif name == "btime":
            boot_unix_s = float(rest)
    if "idle" not in cpu_s or boot_unix_s is None:
        raise ValueError("/proc/stat tells no CPU time")
    cpu_s["user"] += cpu_s["nice"]
    return Processors({mode: cpu_s[mode] for mode in TOLD if mode in cpu_s}, boot_unix_s)


def parse_idle_s(text: str, numbers: Collection[int]) -> float | None:
    """CPU seconds since boot in which these processors had nothing to run, out of /proc/stat; None
    where it doesn't tell."""
    names = {f"cpu{number}" for number in numbers}
    idle, iowait = MODES.index("idle"), MODES.index("iowait")
    ticks = 0
    try:
        for line in text.splitlines():
            name, _, rest = line.partition(" ")
            if name in names:
                modes = rest.split()
                ticks += int(modes[idle]) + int(modes[iowait])
    except (IndexError, ValueError):
        return None
    return ticks / TICKS_PER_S


def parse_load(text: str) -> float:
    """The average over one minute out of /proc/loadavg. ValueError where it is no such file."""
    return float(text.split(" ", 1)[0])
