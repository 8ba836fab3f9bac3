"""Tasks that wait for something that does not answer: found by the kernel, or by us."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from holdfast_sidecar.components.host.clock import find_clock_troubles
from holdfast_sidecar.components.host.cpu import (
    ForeignLoad,
    find_throttling,
    parse_load,
    parse_stat,
    read_group,
    read_pressures,
)
from holdfast_sidecar.components.host.memory import (
    find_memory_errors,
    find_memory_pressure,
    parse_meminfo,
)
from holdfast_sidecar.components.host.readings import (
    HostReading,
    NetworkFilesystem,
    Stuck,
    Tallies,
    tally_before,
)
from holdfast_sidecar.components.host.storage import (
    FilesystemReading,
    MountsProbe,
    RoomsProbe,
    find_full_rooms,
    find_stalled_storage,
)
from holdfast_sidecar.components.host.thermal import Hardware, HardwareProbe, find_heat
from holdfast_sidecar.components.machine import KernelEvents
from holdfast_sidecar.config.settings import HostSettings
from holdfast_sidecar.linux.cgroups import parse_oom_kills
from holdfast_sidecar.linux.files import KernelTrees, read_if_any, read_text
from holdfast_sidecar.linux.probe_runner import Patient, ProbeRunner
from holdfast_sidecar.records.findings import Finding, Kind, Moment
from holdfast_sidecar.records.reports import ProbeHealth


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


# The host: each part read at its own rhythm, put together as one reading.


@dataclass
class HostProbe:
    """Reads under the trees. What may wait for a server or a device has threads of its own:
    statvfs, and sensors that the drivers of devices answer for."""

    paths: Mapping[str, Path]
    """What the job writes to, by purpose."""
    trees: KernelTrees = field(default_factory=KernelTrees)
    settings: HostSettings = field(default_factory=HostSettings)
    ranks: Callable[[], Mapping[int, int]] = dict
    """Pids of this node's ranks."""
    own_proc: Path = Path("/proc")
    """Where the ranks are: a container that watches its host has two of them."""
    name: str = "host"
    _rooms: ProbeRunner[FilesystemReading] = field(init=False)
    _storage: ProbeRunner[tuple[NetworkFilesystem, ...]] = field(init=False)
    _hardware: ProbeRunner[Hardware] = field(init=False)
    _stuck: StuckRanks = field(init=False)
    _foreign: ForeignLoad = field(init=False)
    _tallies: Tallies = field(default_factory=Tallies)

    def __post_init__(self) -> None:
        every_s, trees = self.settings.storage_every_s, self.trees
        mounts = MountsProbe(self.own_proc, trees.sys, self._paths_used)
        self._rooms = ProbeRunner(RoomsProbe(self.paths), every_s)
        self._storage = ProbeRunner(mounts, every_s)
        hardware = Patient(HardwareProbe(trees.sys))
        self._hardware = ProbeRunner(hardware, self.settings.hardware_every_s)
        self._stuck = StuckRanks(self.own_proc)
        self._foreign = ForeignLoad(self.own_proc)

    def health(self) -> tuple[ProbeHealth, ...]:
        """How the parts with rhythms of their own fare."""
        return (self._rooms.health, self._storage.health, self._hardware.health)

    def read(self, now_s: float) -> HostReading:
        """The host now. OSError or ValueError where not even its memory is told."""
        proc, ranks = self.trees.proc, self.ranks()
        processors = parse_stat(read_text(proc / "stat"))
        memory = parse_meminfo(read_text(proc / "meminfo"))
        rooms = self._rooms.read(now_s) or FilesystemReading({}, {})
        hardware = self._hardware.read(now_s) or Hardware()
        reading = HostReading(
            cpu_s=processors.cpu_s,
            cpus=len(os.sched_getaffinity(0)),
            load_1m=parse_load(read_text(proc / "loadavg")),
            memory_size_bytes=memory.size_bytes,
            memory_available_bytes=memory.available_bytes,
            swap_used_bytes=memory.swap_used_bytes,
            boot_unix_s=processors.boot_unix_s,
            pressure=read_pressures(proc / "pressure"),
            rooms=rooms.rooms,
            oom_kills=parse_oom_kills(read_if_any(proc / "vmstat")),
            silent_rooms=rooms.silent,
            group=read_group(self.own_proc, next(iter(ranks.values()), "self")),
            hung_tasks=read_hung_tasks(proc),
            stuck=self._stuck.read(ranks, now_s),
            foreign_cores=self._foreign.read(processors, ranks, now_s),
            clock=hardware.clock,
            memory_errors=hardware.errors,
            sensors=hardware.sensors,
            energy_j=hardware.energy_j or {},
            storage=self._storage.read(now_s) or (),
        )
        return self._tallies.beside(reading, hardware.clock_apart_s, now_s)

    def _paths_used(self) -> dict[str, str]:
        """What the job writes to, and where its ranks work."""
        used = {purpose: str(path.absolute()) for purpose, path in self.paths.items()}
        for rank, pid in self.ranks().items():
            with contextlib.suppress(OSError):
                used[f"rank {rank}"] = str(Path(f"{self.own_proc}/{pid}/cwd").readlink())
        return used


# A host in trouble: everything that it is judged by, in the order in which it is read.


def find_host_troubles(
    host: HostReading | None, moment: Moment, logged: KernelEvents | None = None
) -> Iterator[Finding]:
    """All findings about the host of this node. `logged`: what the kernel's log says."""
    if host is None:
        return
    yield from find_memory_pressure(host, moment)
    yield from find_memory_errors(host, moment)
    yield from find_full_rooms(host, moment)
    yield from find_stalled_storage(host, moment)
    yield from find_hung_tasks(host, moment, logged)
    yield from find_throttling(host, moment)
    yield from find_clock_troubles(host, moment)
    yield from find_heat(host, moment)
