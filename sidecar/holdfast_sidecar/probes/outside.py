"""Looks at ranks without hooks: which processes they are, and what the kernel says of them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from holdfast import environment
from holdfast.foreign_launch import find_seat, is_launcher
from holdfast.identity import ProcessStatus, parse_stat
from holdfast_sidecar.linux.probe_runner import ProbeRunner
from holdfast_sidecar.linux.sockets import read_unread_bytes
from holdfast_sidecar.outside_look import OutsideLook, OutsideRank
from holdfast_sidecar.readings.gpu import GpuReading, Signal

PROC = Path("/proc")


@dataclass(frozen=True)
class Process:
    """A process as a candidate for a rank."""

    pid: int
    parent: int
    start_ticks: int
    command: tuple[str, ...]
    environ: Mapping[str, str]
    """As it was at its start; empty where others' can't be read."""


@dataclass
class OutsideProbe:
    """One look at every rank that was found. Ranks that are gone stay in it as gone."""

    ranks: tuple[OutsideRank, ...]
    proc: Path = PROC
    gpus: ProbeRunner[GpuReading | None] | None = None

    def read(self, now_s: float) -> list[OutsideLook]:
        """Time is CLOCK_MONOTONIC seconds."""
        gpus = None if self.gpus is None else self.gpus.read(now_s)
        busy = {} if gpus is None else busy_by_pid(gpus)
        return [self._look(rank, now_s, busy.get(rank.pid)) for rank in self.ranks]

    def _look(self, who: OutsideRank, now_s: float, gpu_ratio: float | None) -> OutsideLook:
        directory = self.proc / str(who.pid)
        status = read_status(directory)
        if status is None or status.start_ticks != who.start_ticks or status.state in ("Z", "X"):
            return OutsideLook(who, now_s, is_gone=True)
        return OutsideLook(
            who,
            now_s,
            state=status.state,
            cpu_ticks=status.cpu_ticks,
            io_bytes=parse_io(_read(directory / "io")),
            unread_bytes=read_unread_bytes(self.proc, who.pid),
            gpu_ratio=gpu_ratio,
            waits_in=_read(directory / "wchan").strip().strip("0"),
        )


def busy_by_pid(reading: GpuReading) -> dict[int, float]:
    """Process -> how busy the busiest GPU is that it computes on."""
    busy: dict[int, float] = {}
    for gpu in reading.gpus:
        ratio = gpu.value(Signal.BUSY)
        if ratio is not None:
            for user in gpu.users or ():
                busy[user.pid] = max(busy.get(user.pid, 0.0), ratio)
    return busy


def find_ranks(
    pids: Iterable[int], match: str | None, user_id: int, proc: Path = PROC
) -> tuple[OutsideRank, ...]:
    """The ranks among these processes, their descendants, and those whose command line matches.

    Only of this user, who may look at no others unless it is root.
    """
    processes = {process.pid: process for process in _read_all(proc, user_id)}
    roots = set(pids) & processes.keys()
    if match:
        own = {os.getpid(), os.getppid()}
        roots |= {p.pid for p in processes.values() if match in " ".join(p.command)} - own
    return choose_ranks(processes, roots)


def choose_ranks(processes: Mapping[int, Process], roots: set[int]) -> tuple[OutsideRank, ...]:
    """Of each rank the uppermost Python process that is no launcher; without any word of ranks the
    roots themselves, numbered in the order in which they were started."""
    below = [p for p in processes.values() if _has_root(p, processes, roots)]
    seated: dict[int, OutsideRank] = {}
    for process in sorted(below, key=lambda p: (_depth(p, processes), p.start_ticks, p.pid)):
        seat = find_seat({**process.environ, environment.ATTACH: "1"})
        if seat is None or not _is_python(process) or is_launcher(process.command):
            continue
        rank = OutsideRank(seat.rank, seat.local_rank, process.pid, process.start_ticks)
        seated.setdefault(seat.rank, rank)
    if seated:
        return tuple(seated[rank] for rank in sorted(seated))
    ordered = sorted(_uppermost(processes, roots), key=lambda p: (p.start_ticks, p.pid))
    return tuple(OutsideRank(n, n, p.pid, p.start_ticks) for n, p in enumerate(ordered))


def _uppermost(processes: Mapping[int, Process], roots: set[int]) -> list[Process]:
    """The roots themselves; but a shell that holds a rank's command line is none, nor is a loader's
    worker, which has its rank's."""
    given = [processes[pid] for pid in roots]
    likely = [p for p in given if _is_python(p) and not is_launcher(p.command)] or given
    pids = {process.pid for process in likely}
    return [p for p in likely if not any(a.pid in pids - {p.pid} for a in _line(p, processes))]


def read_status(directory: Path) -> ProcessStatus | None:
    """The status of a process; None when it is gone."""
    try:
        return parse_stat((directory / "stat").read_text(errors="replace"))
    except (FileNotFoundError, ProcessLookupError):
        return None


def parse_io(text: str) -> int:
    """Bytes read and written so far, from /proc/PID/io; 0 where that can't be seen."""
    counts = dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)
    return int(counts.get("rchar", 0)) + int(counts.get("wchar", 0))


def _has_root(process: Process, processes: Mapping[int, Process], roots: set[int]) -> bool:
    return any(ancestor.pid in roots for ancestor in _line(process, processes))


def _depth(process: Process, processes: Mapping[int, Process]) -> int:
    return sum(1 for _ in _line(process, processes))


def _line(process: Process, processes: Mapping[int, Process]) -> Iterator[Process]:
    """The process and its ancestors, as far as they can be seen."""
    seen: set[int] = set()
    current: Process | None = process
    while current is not None and current.pid not in seen:
        seen.add(current.pid)
        yield current
        current = processes.get(current.parent)


def _is_python(process: Process) -> bool:
    return bool(process.command) and Path(process.command[0]).name.startswith("python")


def _read_all(proc: Path, user_id: int) -> Iterator[Process]:
    for directory in proc.iterdir():
        if not directory.name.isdecimal():
            continue
        try:
            if user_id in (0, directory.stat().st_uid):
                yield _read_process(directory)
        except (OSError, ValueError, IndexError):
            continue  # gone meanwhile


def _read_process(directory: Path) -> Process:
    stat = (directory / "stat").read_text(errors="replace")
    fields = stat.rpartition(")")[2].split()
    words = (directory / "cmdline").read_bytes().decode(errors="replace").split("\0")
    entries = _read(directory / "environ").split("\0")
    pairs = (entry.partition("=") for entry in entries)
    return Process(
        pid=int(directory.name),
        parent=int(fields[1]),
        start_ticks=int(fields[19]),
        command=tuple(words[:-1]),
        environ={name: value for name, separator, value in pairs if separator},
    )


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
