"""Reads who is around this node's GPUs: what ranks say of theirs, and whose processes use them.

Nothing is judged here. Of a rank's environment only the variables that choose GPUs are kept.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.contract import page
from holdfast.contract.identity import ProcessIdentity, parse_stat
from holdfast_sidecar.components.gpu.ownership import CHOOSING, Company, Device, Process, Seat
from holdfast_sidecar.components.gpu.readings import GpuReading
from holdfast_sidecar.linux.files import read_if_any
from holdfast_sidecar.ranks.page import RankPage

FIRST_NAMESPACE = "pid:[4026531836]"
"""PROC_PID_INIT_INO of include/linux/proc_ns.h: the namespace in which the driver counts pids."""

GENERATIONS = 32
"""A rank's helpers are a few forks below it; this bounds a walk through a tree that changes."""

DEVICES_BYTES = 16_384
ENVIRONMENT_BYTES = 1 << 20


@dataclass
class CompanyReader:
    """Reads each process once: what it says does not change while it lives."""

    held: Callable[[], Sequence[RankPage]]
    own_pids: frozenset[int] = field(default_factory=lambda: frozenset({os.getpid()}))
    proc: str = "/proc"
    _seats: dict[tuple[int, int, int], Seat] = field(default_factory=dict)
    _processes: dict[int, Process] = field(default_factory=dict)
    _sees_all: bool | None = None

    def read(self, reading: GpuReading) -> Company:
        """Everyone around the GPUs of this reading."""
        pids = {user.pid for gpu in reading.gpus for user in gpu.users or ()}
        self._processes = {pid: one for pid in pids if (one := self._process(pid)) is not None}
        self._seats = {_who(held): self._seat(held) for held in self.held()}
        if self._sees_all is None:
            self._sees_all = _namespace(self.proc) == FIRST_NAMESPACE
        return Company(tuple(self._seats.values()), self._processes, self.own_pids, self._sees_all)

    def _process(self, pid: int) -> Process | None:
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


def read_process(pid: int, proc: str = "/proc") -> Process | None:
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
    return Process(pid, name, status.start_ticks, ancestors)


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


def parse_devices(text: str, who: ProcessIdentity) -> tuple[Device, ...]:
    """What the hooks of this process wrote beside the page; nothing when another one wrote it."""
    try:
        told = json.loads(text)
        if told["process"] != str(who):
            return ()
        return tuple(Device(str(one["uuid"]), str(one["pci"])) for one in told["devices"])
    except (ValueError, KeyError, TypeError):
        return ()


def _who(held: RankPage) -> tuple[int, int, int]:
    return (held.identity.pid, held.identity.start_ticks, held.inode)


def _namespace(proc: str) -> str:
    try:
        return str(Path(proc, "self/ns/pid").readlink())
    except OSError:
        return ""
