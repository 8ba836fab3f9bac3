"""What the host said.

None and absence mean that it was not said, which is never the same as 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class Pressure:
    """Pressure stall information of one resource (Documentation/accounting/psi).

    Seconds since boot in which some, or all, tasks waited; the averages are shares over 10 s.
    """

    waiting_s: float | None
    """None: only whole stalls are told (irq)."""
    stalled_s: float | None
    waiting_10s_ratio: float
    stalled_10s_ratio: float | None


@dataclass(frozen=True)
class FilesystemSpace:
    """A file system: its size and what an ordinary user may still write, bytes."""

    size_bytes: int
    available_bytes: int
    files: int | None = None
    """Inodes in all; None where the file system makes them as it needs them."""
    files_available: int | None = None
    device: int | None = None
    """Which file system it is: rooms with the same one share what is available."""


@dataclass(frozen=True)
class CgroupReading:
    """The control group that the ranks (before there are any: the sidecar) are in."""

    memory_limit_bytes: int | None = None
    """The tightest of its own and of those above; None: there is no limit."""
    memory_used_bytes: int | None = None
    """Under that limit, or of the group itself; cache that can be given back not counted."""
    cpu_limit: float | None = None
    """Cores' worth of CPU time; None: no quota."""
    periods: int | None = None
    """In which the quota was shared out so far; None without a quota."""
    throttled_periods: int | None = None
    """In how many of them it was used up."""
    throttled_s: float | None = None
    """Time for which its tasks were kept from running, summed over CPUs."""
    memory_stalled_10s_ratio: float | None = None
    """Share of the last 10 s in which all its tasks waited for memory."""


@dataclass(frozen=True)
class Clock:
    """What adjtimex(2) says of the wall clock."""

    is_synchronised: bool
    offset_s: float
    """How far from the time source it still is."""
    error_s: float
    """At most this far, as far as the kernel knows."""


@dataclass(frozen=True)
class MemoryErrors:
    """Counts of the memory controllers (EDAC) since boot."""

    corrected: int | None
    uncorrected: int | None


@dataclass(frozen=True)
class Sensor:
    """The sensor of its kind that is nearest to its critical temperature, °C."""

    name: str
    temperature: float
    critical: float

    @property
    def margin(self) -> float:
        """What is left until it is critical."""
        return self.critical - self.temperature


@dataclass(frozen=True)
class Stuck:
    """A rank's process in one uninterruptible wait for all that time, by turns on a CPU."""

    rank: int
    pid: int
    for_s: float
    where: str = ""
    """The kernel's function that it waits in, where that is told."""


@dataclass(frozen=True)
class NetworkFilesystem:
    """A network file system that the job uses."""

    purpose: str
    kind: str
    point: str
    silent_s: float = 0.0
    """For how long questions have been open with no answer at all."""
    timeouts: int | None = None
    """Requests sent again for want of an answer, since it was mounted."""
    state: str = ""
    """What is wrong with the connection, in the client's own word."""


@dataclass(frozen=True)
class CounterHistory:
    """What only means something beside its later or earlier self, at one time (monotonic)."""

    at_s: float
    periods: int | None = None
    throttled_periods: int | None = None
    corrected: int | None = None
    uncorrected: int | None = None
    hung_tasks: int | None = None
    available: Mapping[str, int] = field(default_factory=dict)
    """Bytes, by room."""
    margins: Mapping[str, float] = field(default_factory=dict)
    """°C, by sensor."""
    clock_apart_s: float | None = None
    """Wall clock less the time since boot: it stays while nobody sets the clock."""
    was_synchronised: bool | None = None


@dataclass(frozen=True)
class HostReading:
    """What the host says now."""

    cpu_s: Mapping[str, float]
    """CPU seconds since boot by mode."""
    cpus: int
    load_1m: float
    memory_size_bytes: int
    memory_available_bytes: int
    swap_used_bytes: int
    boot_unix_s: float
    pressure: Mapping[str, Pressure] = field(default_factory=dict)
    """By resource; empty on a kernel without PSI."""
    rooms: Mapping[str, FilesystemSpace] = field(default_factory=dict)
    """By purpose: `shm`, `checkpoint`, `state`."""
    oom_kills: int | None = None
    silent_rooms: Mapping[str, float] = field(default_factory=dict)
    """For how many seconds the file system of a room has not answered, by purpose."""
    group: CgroupReading | None = None
    hung_tasks: int | None = None
    """Tasks that the kernel found hung since boot; None where it doesn't count them."""
    stuck: tuple[Stuck, ...] = ()
    foreign_cores: float | None = None
    """Cores' worth of CPU time that went to processes outside of the job of late."""
    clock: Clock | None = None
    memory_errors: MemoryErrors | None = None
    sensors: tuple[Sensor, ...] = ()
    energy_j: Mapping[str, float] = field(default_factory=dict)
    """Joules that a part of the host used so far, by the name that the kernel gives it."""
    storage: tuple[NetworkFilesystem, ...] = ()
    now: CounterHistory | None = None
    earlier: tuple[CounterHistory, ...] = ()
    """Oldest first, of the last hour."""


def tally_before(host: HostReading, span_s: float) -> CounterHistory | None:
    """The latest of the earlier tallies that is at least this old; None while none is."""
    if host.now is None:
        return None
    old_enough = (one for one in reversed(host.earlier) if one.at_s <= host.now.at_s - span_s)
    return next(old_enough, None)


# What the host counted earlier, for those who judge by how it changed.

EVERY_S = 15.0
KEPT = 241
"""An hour: what is rarer than that is no storm, and no disk's filling is told from further back."""


@dataclass
class Tallies:
    """Kept from reading to reading."""

    _kept: list[CounterHistory] = field(default_factory=list)

    def beside(
        self, reading: HostReading, clock_apart_s: float | None, now_s: float
    ) -> HostReading:
        """The reading with its own tally and the earlier ones."""
        tally = tally_of(reading, clock_apart_s, now_s)
        reading = replace(reading, now=tally, earlier=tuple(self._kept))
        if not self._kept or now_s - self._kept[-1].at_s >= EVERY_S:
            self._kept = [*self._kept, tally][-KEPT:]
        return reading


def tally_of(reading: HostReading, clock_apart_s: float | None, now_s: float) -> CounterHistory:
    """What of the reading only means something beside its earlier self."""
    group, errors = reading.group, reading.memory_errors
    return CounterHistory(
        at_s=now_s,
        periods=None if group is None else group.periods,
        throttled_periods=None if group is None else group.throttled_periods,
        corrected=None if errors is None else errors.corrected,
        uncorrected=None if errors is None else errors.uncorrected,
        hung_tasks=reading.hung_tasks,
        available={purpose: room.available_bytes for purpose, room in reading.rooms.items()},
        margins={sensor.name: sensor.margin for sensor in reading.sensors},
        clock_apart_s=clock_apart_s,
        was_synchronised=None if reading.clock is None else reading.clock.is_synchronised,
    )
