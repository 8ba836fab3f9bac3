"""CPU time and load of the host, from /proc/stat and /proc/loadavg."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from holdfast_sidecar.components.host.readings import (
    CgroupReading,
    HostReading,
    Pressure,
    tally_before,
)
from holdfast_sidecar.linux.cgroups import (
    BEFORE_ANYBODY_IS_KILLED,
    CgroupPlace,
    Mount,
    find_places,
    parse_mounts,
    read_counts,
    read_memory,
)
from holdfast_sidecar.linux.files import read_if_any
from holdfast_sidecar.records.findings import Finding, Kind, Moment

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


# CPU time that went to processes outside of the job: what the host spent less what the job did.

MOST_PROCESSES = 512
"""Looked at when the job's time is summed up: eight ranks with sixteen loader workers each, and
more."""

FOREIGN_LOAD_SPAN_S = 4.0
"""Times are told in ticks of 10 ms: over a shorter span their rounding would show."""


@dataclass(frozen=True)
class CpuTime:
    """CPU seconds so far, at one time."""

    at_s: float
    host_s: float
    job_s: float


@dataclass
class ForeignLoad:
    """Compares two looks. Where a rank came or went between them nothing is said."""

    own_proc: Path
    _before: CpuTime | None = None
    _pids: frozenset[int] = frozenset()
    _cores: float | None = None

    def read(self, host: Processors, ranks: Mapping[int, int], now_s: float) -> float | None:
        """Cores' worth of late; None before two looks, and without ranks."""
        if not ranks:
            self._before = self._cores = None
            return None
        if self._before is not None and now_s - self._before.at_s < FOREIGN_LOAD_SPAN_S:
            return self._cores
        spent = CpuTime(now_s, host.busy_s, self._job_s(ranks))
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


def foreign_cores(before: CpuTime, now: CpuTime) -> float | None:
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


# A quota of CPU time that keeps ranks waiting.

QUOTA_SPAN_S = 60.0

THROTTLED_RATIO = 0.25
"""Of the periods (100 ms each) in which anything ran. A burst at the start of a step uses up a
period now and then; a quarter is what kubernetes-mixin calls too much, and every collective waits
for the slowest rank, so that of eight ranks one is held up nearly always."""

LEAST_PERIODS = 100
"""Ten seconds of running: a share of less says nothing."""


def find_throttling(host: HostReading, moment: Moment) -> Iterator[Finding]:
    """Judged over a minute; counts that went backwards are another group's."""
    before, now = tally_before(host, QUOTA_SPAN_S), host.now
    if before is None or now is None or host.group is None:
        return
    periods = _grown(before.periods, now.periods)
    throttled = _grown(before.throttled_periods, now.throttled_periods)
    if periods < LEAST_PERIODS or throttled < THROTTLED_RATIO * periods:
        return
    limit = "" if host.group.cpu_limit is None else f" of {host.group.cpu_limit:.3g} cores"
    yield Finding(
        kind=Kind.CPU_THROTTLED,
        node=moment.node,
        since_unix_s=moment.now_unix_s,
        confidence=0.9,
        evidence=[f"the CPU quota{limit} was used up in {throttled / periods:.0%} of its periods"],
    )


def _grown(before: int | None, now: int | None) -> int:
    return 0 if before is None or now is None else max(0, now - before)


# How much tasks wait for CPU, memory, disks and interrupts (PSI), of the host or of a cgroup.

RESOURCES = ("cpu", "io", "memory", "irq")


def read_pressures(directory: Path) -> dict[str, Pressure]:
    """Pressure by resource, as far as the kernel tells."""
    parsed = {name: parse_pressure(read_if_any(f"{directory}/{name}")) for name in RESOURCES}
    return {name: pressure for name, pressure in parsed.items() if pressure is not None}


def parse_pressure(text: str) -> Pressure | None:
    """Parse a file of /proc/pressure; None when it says nothing. Totals there are microseconds."""
    lines = {}
    for line in text.splitlines():
        kind, *fields = line.split() or [""]
        lines[kind] = dict(item.split("=", 1) for item in fields if "=" in item)
    try:
        some, full = _parse_line(lines.get("some")), _parse_line(lines.get("full"))
    except (KeyError, ValueError):
        return None
    if some is None and full is None:
        return None
    return Pressure(
        waiting_s=None if some is None else some[0],
        stalled_s=None if full is None else full[0],
        waiting_10s_ratio=0.0 if some is None else some[1],
        stalled_10s_ratio=None if full is None else full[1],
    )


def _parse_line(fields: dict[str, str] | None) -> tuple[float, float] | None:
    """(seconds in all, share of the last 10 s)"""
    if fields is None:
        return None
    return int(fields["total"]) / 1e6, float(fields["avg10"]) / 100


# Limits, use and throttling of the control group that the ranks are in (version 1 and 2).


def read_group(proc: Path, pid: int | str) -> CgroupReading:
    """The group of this process (`self`: our own); empty where nothing is told."""
    mounts = parse_mounts(read_if_any(f"{proc}/self/mountinfo"))
    cgroups = read_if_any(f"{proc}/{pid}/cgroup")
    memory = find_places("memory", cgroups, mounts)
    allowed = read_memory(memory, BEFORE_ANYBODY_IS_KILLED)
    limit_cpus, counts, is_unified = read_quota(_of_cpu(cgroups, mounts))
    return CgroupReading(
        memory_limit_bytes=allowed.limit_bytes,
        memory_used_bytes=allowed.used_bytes,
        cpu_limit=limit_cpus,
        periods=counts.get("nr_periods"),
        throttled_periods=counts.get("nr_throttled"),
        throttled_s=parse_throttled(counts, is_unified),
        memory_stalled_10s_ratio=_read_stalls(memory),
    )


def read_cpu_limit(proc: Path, pid: int | str) -> float | None:
    """Cores that this process may use at once (`self`: our own); None: there is no quota."""
    mounts = parse_mounts(read_if_any(f"{proc}/self/mountinfo"))
    found = find_quota(_of_cpu(read_if_any(f"{proc}/{pid}/cgroup"), mounts))
    return None if found is None else found[0]


def read_quota(places: Sequence[CgroupPlace]) -> tuple[float | None, dict[str, int], bool]:
    """(cores, counts of cpu.stat, whether those are of version 2) of the tightest quota."""
    found = find_quota(places)
    if found is None:
        return None, {}, True
    cores, place = found
    return cores, read_counts(place.directory / "cpu.stat"), place.is_unified


def find_quota(places: Sequence[CgroupPlace]) -> tuple[float, CgroupPlace] | None:
    """(cores, where) of the tightest quota; None: these groups have none."""
    found = [(_quota(place), place) for place in places]
    limited = [(quota, place) for quota, place in found if quota is not None]
    return min(limited, key=lambda pair: pair[0]) if limited else None


def parse_throttled(counts: Mapping[str, int], is_unified: bool) -> float | None:
    """Seconds that the group was throttled so far, from its cpu.stat; None: it doesn't tell."""
    throttled = counts.get("throttled_usec" if is_unified else "throttled_time")
    return None if throttled is None else throttled / (1e6 if is_unified else 1e9)


def parse_quota(cpu_max: str) -> float | None:
    """Cores out of cpu.max, or of version 1's quota and period in one line; None: no quota."""
    fields = cpu_max.split()
    if len(fields) != 2 or not (fields[0] + fields[1]).isdecimal() or int(fields[1]) == 0:
        return None
    return int(fields[0]) / int(fields[1])


def _of_cpu(cgroups: str, mounts: list[Mount]) -> list[CgroupPlace]:
    return find_places("cpu", cgroups, mounts)


def _quota(place: CgroupPlace) -> float | None:
    if place.is_unified:
        return parse_quota(read_if_any(place.directory / "cpu.max"))
    quota = read_if_any(place.directory / "cpu.cfs_quota_us").strip()  # -1: none
    return parse_quota(f"{quota} {read_if_any(place.directory / 'cpu.cfs_period_us')}")


def _read_stalls(places: Sequence[CgroupPlace]) -> float | None:
    """Of the nearest group that tells; only version 2 does."""
    texts = (read_if_any(p.directory / "memory.pressure") for p in places if p.is_unified)
    told = next((pressure for text in texts if (pressure := parse_pressure(text))), None)
    return None if told is None else told.stalled_10s_ratio


# For how long each rank's own CPU quota has kept it from running, so far.
#
# Ranks may each be in a control group of their own; a group without a quota throttles nobody.

EVERY_S = 1.0

FOUND_AGAIN_S = 5.0
"""How soon a quota is noticed that was set, or a group that a rank was put into, while it runs.
Looking for one reads several files of each group up to the root."""


@dataclass
class ThrottlingProbe:
    """Reads one file a second of each quota that ranks are under."""

    ranks: Callable[[], Mapping[int, int]]
    """Pids of this node's ranks."""
    proc: Path = Path("/proc")
    name: str = "throttling"
    _quotas: dict[int, CgroupPlace] = field(default_factory=dict)
    """pid -> where the tightest one is set."""
    _due_s: float = -math.inf

    def read(self, now_s: float) -> dict[int, float]:
        """rank -> seconds; ranks without a quota are left out."""
        ranks = self.ranks()
        if now_s >= self._due_s or not self._quotas.keys() <= set(ranks.values()):
            self._quotas = self._find(ranks.values())
            self._due_s = now_s + FOUND_AGAIN_S
        told = {place: _read(place) for place in set(self._quotas.values())}
        throttled = {
            rank: told[self._quotas[pid]] for rank, pid in ranks.items() if pid in self._quotas
        }
        return {rank: seconds for rank, seconds in throttled.items() if seconds is not None}

    def _find(self, pids: Iterable[int]) -> dict[int, CgroupPlace]:
        groups = {pid: read_if_any(f"{self.proc}/{pid}/cgroup") for pid in pids}
        mounts = parse_mounts(read_if_any(f"{self.proc}/self/mountinfo"))
        quotas = {
            group: find_quota(find_places("cpu", group, mounts)) for group in set(groups.values())
        }
        return {
            pid: found[1] for pid, group in groups.items() if (found := quotas[group]) is not None
        }


def _read(place: CgroupPlace) -> float | None:
    return parse_throttled(read_counts(place.directory / "cpu.stat"), place.is_unified)
