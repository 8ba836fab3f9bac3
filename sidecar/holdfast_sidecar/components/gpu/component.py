"""Reads who is around this node's GPUs: what ranks say of theirs, and whose processes use them.

Nothing is judged here. Of a rank's environment only the variables that choose GPUs are kept.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from holdfast.contract import page
from holdfast.contract.identity import ProcessIdentity, parse_stat
from holdfast_sidecar.components.gpu.checks import (
    find_error_storms,
    find_failing_memory,
    find_lost_gpus,
    find_shared_gpus,
    find_wanted_recoveries,
)
from holdfast_sidecar.components.gpu.history import (
    EnergyAccount,
    GpuContext,
    GpuSummary,
    RankProgress,
    follow_energy,
    follow_gpus,
)
from holdfast_sidecar.components.gpu.links import find_degraded_links, find_throttled_gpus
from holdfast_sidecar.components.gpu.ownership import (
    CHOOSING,
    GpuOwnership,
    GpuProcess,
    GpuUsers,
    RankDevice,
    Seat,
    owners,
    tie_up,
)
from holdfast_sidecar.components.gpu.readings import GpuReading, leave_out_garbage
from holdfast_sidecar.linux.files import read_if_any
from holdfast_sidecar.ranks.observation import RankHistory
from holdfast_sidecar.ranks.page import RankPage
from holdfast_sidecar.records.findings import Finding, Moment

FIRST_NAMESPACE = "pid:[4026531836]"
"""PROC_PID_INIT_INO of include/linux/proc_ns.h: the namespace in which the driver counts pids."""

GENERATIONS = 32
"""A rank's helpers are a few forks below it; this bounds a walk through a tree that changes."""

DEVICES_BYTES = 16_384
ENVIRONMENT_BYTES = 1 << 20


@dataclass
class GpuUsersReader:
    """Reads each process once: what it says does not change while it lives."""

    held: Callable[[], Sequence[RankPage]]
    own_pids: frozenset[int] = field(default_factory=lambda: frozenset({os.getpid()}))
    proc: str = "/proc"
    _seats: dict[tuple[int, int, int], Seat] = field(default_factory=dict)
    _processes: dict[int, GpuProcess] = field(default_factory=dict)
    _sees_all: bool | None = None

    def read(self, reading: GpuReading) -> GpuUsers:
        """Everyone around the GPUs of this reading."""
        pids = {user.pid for gpu in reading.gpus for user in gpu.users or ()}
        self._processes = {pid: one for pid in pids if (one := self._process(pid)) is not None}
        self._seats = {_who(held): self._seat(held) for held in self.held()}
        if self._sees_all is None:
            self._sees_all = _namespace(self.proc) == FIRST_NAMESPACE
        return GpuUsers(tuple(self._seats.values()), self._processes, self.own_pids, self._sees_all)

    def _process(self, pid: int) -> GpuProcess | None:
        return self._processes.get(pid) or read_process(pid, self.proc)

    def _seat(self, held: RankPage) -> Seat:
        known = self._seats.get(_who(held))
        if known is not None and known.devices:
            return known
        identity = held.identity
        devices = read_if_any(held.path.with_suffix(page.DEVICES_SUFFIX), DEVICES_BYTES)
        environment = known.environment if known is not None else None
        if environment is None and held.pidfd is not None:
            # Without a handle its pid is of another namespace, or another process's by now.
            environment = read_environment(identity.pid, self.proc)
        return Seat(
            identity.rank,
            identity.local_rank,
            identity.pid,
            identity.start_ticks,
            environment,
            parse_devices(devices, ProcessIdentity(identity.pid, identity.start_ticks)),
        )


def read_process(pid: int, proc: str = "/proc") -> GpuProcess | None:
    """A process and its ancestors; None when it can't be seen, or is gone."""
    text = read_if_any(f"{proc}/{pid}/stat")
    if not text:
        return None
    try:
        status = parse_stat(text)
    except (ValueError, IndexError):
        return None
    name = text[text.find("(") + 1 : text.rindex(")")]
    ancestors = tuple(_ancestors(status.parent_pid, proc))
    return GpuProcess(pid, name, status.start_ticks, ancestors)


def _ancestors(pid: int, proc: str) -> Iterable[int]:
    for _ in range(GENERATIONS):
        if pid <= 1:
            return
        yield pid
        try:
            pid = parse_stat(read_if_any(f"{proc}/{pid}/stat")).parent_pid
        except (ValueError, IndexError):
            return


def read_environment(pid: int, proc: str = "/proc") -> Mapping[str, str] | None:
    """Those variables that choose GPUs, as the process began with them; None: may not be read."""
    text = read_if_any(f"{proc}/{pid}/environ", ENVIRONMENT_BYTES)
    return parse_environment(text) if text else None


def parse_environment(text: str) -> Mapping[str, str]:
    """Of `NAME=value` strings that end in NUL, those that choose GPUs."""
    pairs = (entry.partition("=") for entry in text.split("\0"))
    return {name: value for name, _, value in pairs if name in CHOOSING}


def parse_devices(text: str, who: ProcessIdentity) -> tuple[RankDevice, ...]:
    """What the hooks of this process wrote beside the page; nothing when another one wrote it."""
    try:
        told = json.loads(text)
        if told["process"] != str(who):
            return ()
        return tuple(RankDevice(str(one["uuid"]), str(one["pci"])) for one in told["devices"])
    except (ValueError, KeyError, TypeError):
        return ()


def _who(held: RankPage) -> tuple[int, int, int]:
    return (held.identity.pid, held.identity.start_ticks, held.inode)


def _namespace(proc: str) -> str:
    try:
        return str(Path(proc, "self/ns/pid").readlink())
    except OSError:
        return ""


# Keeps what is known of this node's GPUs from tick to tick, and has every fresh reading judged.
#
# A stale reading is not judged, and what was found before it stands: that nothing is seen any more
# does not mean that it is over.

# Everything that GPUs are judged by, from one fresh reading and what went before.


def judge_states(scene: GpuContext, moment: Moment) -> list[Finding]:
    """What a GPU says of itself now: judged with every reading."""
    return [
        *find_lost_gpus(scene, moment),
        *find_wanted_recoveries(scene, moment),
        *find_failing_memory(scene, moment),
        *find_shared_gpus(scene, moment),
    ]


def judge_rates(scene: GpuContext, moment: Moment) -> list[Finding]:
    """What shows over half a minute and more: judged now and then."""
    return [
        *find_error_storms(scene, moment),
        *find_throttled_gpus(scene, moment),
        *find_degraded_links(scene, moment),
    ]


RATES_EVERY_S = 5.0
"""They are worked out over half a minute and more, and cost four times what the rest does."""

NO_GPUS = GpuReading(is_present=False)


class GpuUsersReading(Protocol):
    """Who is around the GPUs: `components.gpu.process_probe.CompanyReader`."""

    def read(self, reading: GpuReading) -> GpuUsers:
        """Everyone around the GPUs of this reading."""


class Nobody:
    """No ranks, and no process can be seen."""

    def read(self, reading: GpuReading) -> GpuUsers:
        """Nobody is there."""
        return GpuUsers()


@dataclass
class GpuWatch:
    """One node's. `scene` and `energy` are as of the newest fresh reading."""

    company: GpuUsersReading = field(default_factory=Nobody)
    scene: GpuContext = field(default_factory=lambda: GpuContext(NO_GPUS))
    energy: EnergyAccount = field(default_factory=EnergyAccount)
    _states: tuple[Finding, ...] = ()
    _rates: tuple[Finding, ...] = ()
    _rates_due_s: float = float("-inf")
    _seen: GpuReading | None = None

    @property
    def ownership(self) -> GpuOwnership:
        """Whose GPUs they are, as far as is known."""
        return self.scene.ownership

    def view(self) -> GpuSummary:
        """What metrics tell."""
        return GpuSummary(self.ownership, self.energy)

    def owners(self) -> dict[str, int]:
        """UUID and PCI address of each GPU -> its rank."""
        return owners(self.scene.reading, self.ownership)

    def sureness(self) -> dict[str, float]:
        """UUID of each GPU -> how sure it is whose it is."""
        return {gpu.uuid: self.ownership.sureness(gpu.uuid) for gpu in self.scene.reading.gpus}

    def follow(
        self, reading: GpuReading | None, ranks: Mapping[int, RankHistory], moment: Moment
    ) -> list[Finding]:
        """All findings about GPUs that stand now; a reading is taken in once."""
        if reading is not None and _says_something(reading) and reading is not self._seen:
            self._seen = reading
            self._take_in(_timed(reading, moment), ranks)
            self._judge(moment)
        return [*self._states, *self._rates]

    def _judge(self, moment: Moment) -> None:
        self._states = tuple(judge_states(self.scene, moment))
        if moment.now_s >= self._rates_due_s:
            self._rates = tuple(judge_rates(self.scene, moment))
            self._rates_due_s = moment.now_s + RATES_EVERY_S

    def _take_in(self, reading: GpuReading, ranks: Mapping[int, RankHistory]) -> None:
        reading = leave_out_garbage(reading)
        company = self.company.read(reading)
        self.scene = GpuContext(
            reading,
            follow_gpus(self.scene.history, reading),
            tie_up(reading, company, self.ownership),
            company,
        )
        progress = {rank: _progress(history) for rank, history in ranks.items()}
        self.energy = follow_energy(
            self.energy, reading, self.scene.history, self.ownership, progress
        )


def _says_something(reading: GpuReading) -> bool:
    """Also that there is no driver, where there should be GPUs."""
    return reading.stale_since_s is None and (reading.is_present or bool(reading.expected))


def _timed(reading: GpuReading, moment: Moment) -> GpuReading:
    """One that does not say when it was made is as old as this tick."""
    return reading if reading.read_at_s else dataclasses.replace(reading, read_at_s=moment.now_s)


def _progress(history: RankHistory) -> RankProgress:
    look = history.look
    return RankProgress(look.identity.pid, look.identity.start_ticks, look.step, look.tokens)
