"""One process as /proc shows it: where its threads wait, who its children are, what it moved.

The calls of another process may be read by root and by whoever may trace it; every reading answers
with nothing where the kernel doesn't let us see. No file system is asked about the files that it
holds open: one whose server is away would never answer, and it is for that we are called.
"""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from holdfast.contract.identity import ProcessStatus, parse_stat, read_status
from holdfast_sidecar.linux.files import read_if_any, read_text
from holdfast_sidecar.linux.sockets import read_peer
from holdfast_sidecar.linux.syscalls import (
    DRIVERS,
    GPU_FILES,
    IN_A_FREEZER,
    IN_A_PIPE,
    MACHINE,
    ON_DESCRIPTOR,
    ON_EPOLL,
    ON_MEMORY,
    ON_POLL,
    STACK_BYTES,
    TIMESPEC_BYTES,
    SystemCall,
    ThreadWait,
    Where,
    ends_by_itself_s,
    is_mere_sleep,
    is_shared_lock,
    parse_call,
    parse_code,
    parse_connections,
    parse_end_s,
    parse_epoll,
    parse_pollfds,
    parse_unix_connections,
    place_of,
    returns_into,
    timer_address,
    where_of,
)

MOST_THREADS = 512
MOST_CHILDREN = 64
MOST_DESCRIPTORS = 64


@dataclass(frozen=True)
class ProcDirectory:
    """One process's directory in /proc; every reading answers with nothing when it can't."""

    directory: Path
    parent: ProcDirectory | None = None
    """Whoever it works for, where that is looked at, too."""

    @cached_property
    def name(self) -> str:
        """What it calls itself."""
        return read_if_any(self.directory / "comm").strip()

    @cached_property
    def connected(self) -> frozenset[str]:
        """Its network connections, by the links of their descriptors."""
        found: frozenset[str] = frozenset()
        for table in ("tcp", "tcp6", "udp", "udp6"):
            found |= parse_connections(read_if_any(self.directory / "net" / table))
        return found

    @cached_property
    def linked(self) -> frozenset[str]:
        """Unix sockets in its network namespace that have another end, the same way."""
        return parse_unix_connections(read_if_any(self.directory / "net" / "unix"))

    @cached_property
    def held(self) -> frozenset[str]:
        """What its descriptors are."""
        return frozenset(map(self._target, _numbers(self.directory / "fd")))

    @cached_property
    def calls(self) -> dict[int, str]:
        """Which call each of its threads is in, as the kernel tells it."""
        return {thread: self._read_call(thread) for thread in self.threads()}

    @cached_property
    def is_mapping(self) -> bool:
        """Whether a thread of it may keep its memory locked: that of a file is mapped only once
        the file's server has answered, and who reads the memory or its map waits as long."""
        known = (parse_call(text) for text in self.calls.values())
        is_seen_whole = len(self.calls) < MOST_THREADS
        return not is_seen_whole or any(c is not None and c.number in ON_MEMORY for c in known)

    @cached_property
    def uses_gpu(self) -> bool:
        """Whether it holds a GPU's file open."""
        return any(target.startswith(GPU_FILES) for target in self.held)

    @cached_property
    def driver_code(self) -> list[tuple[int, int]]:
        """Where its GPU's driver lies in its memory."""
        return parse_code(read_if_any(self.directory / "maps"), DRIVERS)

    def threads(self) -> list[int]:
        """Its threads, the main one first as a rule."""
        return _numbers(self.directory / "task")[:MOST_THREADS]

    def lists_children(self) -> bool:
        """Whether this kernel tells who its children are."""
        return (self.directory / "task" / self.directory.name / "children").exists()

    def wait(self, thread: int, now_s: float) -> ThreadWait | None:
        """Where a thread waits; None when the kernel doesn't say."""
        text = self.calls.get(thread) or self._read_call(thread)
        if not text or platform.machine() != MACHINE:
            return None
        call = parse_call(text)
        if call is None:
            return ThreadWait(Where.CPU)
        targets, connected = frozenset(self._targets(call, thread)), self._connected_for(call)
        elsewhere = self._elsewhere(targets - connected)
        where = where_of(call.number, targets, connected, elsewhere)
        if self._is_frozen(thread):
            where = Where.OTHER
        elif where is Where.LOCK and self._is_in_driver(call):
            where = Where.DEVICE
        elif is_mere_sleep(call):
            where = Where.SLEEP
        elif is_shared_lock(call) and self.parent is None:
            where = Where.PROCESS  # a child of ours most likely shares it with us
        wait = ThreadWait(where, place_of(call), ends_by_itself_s(call))
        if (address := timer_address(call)) == 0:
            return wait
        timespec = self._read_memory(address, TIMESPEC_BYTES)
        return ThreadWait(where, place_of(call), parse_end_s(call, timespec, now_s, time.time()))

    def read_transferred(self) -> int | None:
        """Bytes that it read and wrote by calls so far."""
        fields = dict(
            line.split(": ")
            for line in read_if_any(self.directory / "io").splitlines()
            if ": " in line
        )
        if "rchar" not in fields or "wchar" not in fields:
            return None
        return int(fields["rchar"]) + int(fields["wchar"])

    def _read_call(self, thread: int) -> str:
        return read_if_any(self.directory / "task" / str(thread) / "syscall")

    def _targets(self, call: SystemCall, thread: int) -> Iterator[str]:
        for descriptor in self._descriptors(call)[:MOST_DESCRIPTORS]:
            if target := self._target(descriptor):
                is_fifo = target.startswith("/") and self._is_fifo(target, call, thread)
                yield f"fifo:{target}" if is_fifo else target

    def _descriptors(self, call: SystemCall) -> list[int]:
        first, second = call.arguments[:2]
        if call.number in ON_DESCRIPTOR:
            return [first]
        if call.number in ON_EPOLL:
            return parse_epoll(read_if_any(self.directory / "fdinfo" / str(first)))
        if call.number in ON_POLL:
            return parse_pollfds(self._read_memory(first, 8 * min(second, MOST_DESCRIPTORS)))
        return []

    def _target(self, descriptor: int) -> str:
        try:
            return str((self.directory / "fd" / str(descriptor)).readlink())
        except OSError:
            return ""

    def _is_fifo(self, path: str, call: SystemCall, thread: int) -> bool:
        """Whether it waits for what a FIFO of this path brings: a file is always ready, so who
        polls waits for none; of other calls the kernel says where in it they wait."""
        if call.number in ON_POLL | ON_EPOLL:
            return not path.startswith("/dev/")
        return IN_A_PIPE in read_if_any(self.directory / "task" / str(thread) / "wchan")

    def _is_frozen(self, thread: int) -> bool:
        """Whether its control group is frozen, so that its main thread is in no call any more; the
        others are where that one is."""
        if str(thread) != self.directory.name:
            return False
        place = read_if_any(self.directory / "task" / str(thread) / "wchan")
        return any(name in place for name in IN_A_FREEZER)

    def _connected_for(self, call: SystemCall) -> frozenset[str]:
        is_asked = call.number in ON_DESCRIPTOR | ON_EPOLL | ON_POLL
        return self.connected if is_asked else frozenset()

    def _elsewhere(self, targets: frozenset[str]) -> frozenset[str]:
        """Those Unix sockets whose other end neither it nor its parent holds, as far as that can be
        told."""
        sockets = frozenset(target for target in targets if target.startswith("socket:"))
        linked = sockets & self.linked if sockets else frozenset()
        return frozenset(one for one in linked if not self._shares(self._peer(one)))

    def _shares(self, target: str) -> bool:
        return target in self.held or (self.parent is not None and target in self.parent.held)

    @staticmethod
    def _peer(target: str) -> str:
        inode = target.removeprefix("socket:[").removesuffix("]")
        return f"socket:[{read_peer(int(inode))}]"

    def _is_in_driver(self, call: SystemCall) -> bool:
        """Whether it waits for its GPU, as a process does that asked not to spin: for a lock."""
        if not self.uses_gpu:
            return False
        if self.is_mapping:
            return True  # for all that can be seen now
        if not self.driver_code:
            return False
        stack = self._read_memory(call.stack_pointer, STACK_BYTES)
        return not stack or returns_into(stack, self.driver_code)

    def _read_memory(self, address: int, size: int) -> bytes:
        if self.is_mapping:
            return b""
        try:
            descriptor = os.open(self.directory / "mem", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return b""
        try:
            return os.pread(descriptor, size, address)
        except (OSError, OverflowError):
            return b""
        finally:
            os.close(descriptor)


def parse_exit_status(stat_text: str) -> int:
    """Field 52 of /proc/PID/stat; 0 while it runs, or where we may not know."""
    fields = stat_text[stat_text.rindex(")") + 2 :].split()
    return int(fields[49]) if len(fields) > 49 else 0


def descendants(proc: Path, pid: int) -> list[int]:
    """Children, their children and so on, nearest first; where the kernel lists them."""
    found: list[int] = []
    waiting = [pid]
    while waiting and len(found) < MOST_CHILDREN:
        directory = proc / str(waiting.pop(0)) / "task"
        for thread in _numbers(directory)[:MOST_THREADS]:
            listed = read_if_any(directory / str(thread) / "children")
            children = [int(child) for child in listed.split()]
            found += children
            waiting += children
    return found[:MOST_CHILDREN]


def _numbers(directory: Path) -> list[int]:
    try:
        return sorted(int(entry.name) for entry in directory.iterdir())
    except OSError:
        return []


# Whether a process ends, before the kernel has cleared it away, and how it ends.
#
# The kernel says so of every thread from the moment at which nothing can keep it from ending; what
# waits for processes (wait, pidfd, sockets) is told only after all their memory has been freed.


def read_is_dying(directory: str, status: ProcessStatus) -> bool:
    """Whether all threads of this process (/proc/PID) end; `status` is that of its first one.

    The first one alone does not tell: it may leave the others behind (pthread_exit), and goes when
    another one replaces the program (exec). That one then takes the first one's place, and is not
    found in its own any more, so the first place is looked at again in the end.
    """
    return status.is_ending and all(
        thread is None or thread.is_ending or thread.is_killed
        for thread in (*_read_threads(directory), _read_thread(f"{directory}/stat"))
    )


def is_back(status: ProcessStatus) -> bool:
    """Whether a process whose end was just told runs all the same: some kernels tell of the end of
    the first thread when another one replaces the program."""
    return not status.is_ending and status.state not in ("Z", "X")


def exit_code_of(wait_status: int) -> int:
    """As `os.waitstatus_to_exitcode`, of a process that is not yet waited for."""
    signal = wait_status & 0x7F
    return -signal if signal else wait_status >> 8 & 0xFF


def _read_threads(directory: str) -> list[ProcessStatus | None]:
    try:
        threads = os.listdir(f"{directory}/task")  # noqa: PTH208 - names are wanted, not paths
    except (FileNotFoundError, ProcessLookupError):
        return []
    others = (thread for thread in threads if thread != directory.rpartition("/")[2])
    return [_read_thread(f"{directory}/task/{thread}/stat") for thread in others]


def _read_thread(file: str) -> ProcessStatus | None:
    try:
        return parse_stat(read_text(file))
    except (FileNotFoundError, ProcessLookupError):
        return None


# Python's resource trackers among a rank's processes: they remove what the others leave behind.
#
# A tracker unlinks the semaphores and shared memory of multiprocessing once its last client is
# gone, and then ends by itself. Killed together with its clients it can't, and they stay in
# /dev/shm for ever.

PATIENCE_S = 1.0
"""A tracker whose clients are gone is done within milliseconds; on a busy machine in tens."""

LOOK_S = 0.005

MARK = b"multiprocessing.resource_tracker"


def is_tracker(pid: int, proc: Path = Path("/proc")) -> bool:
    """Whether this process is a resource tracker."""
    try:
        return MARK in (proc / str(pid) / "cmdline").read_bytes()
    except OSError:
        return False


def sessions_of(leaders: Iterable[int], proc: Path = Path("/proc")) -> list[int]:
    """Living processes of the sessions that these processes lead or led."""
    wanted = set(leaders)
    pids = [int(name) for name in os.listdir(proc) if name.isdecimal()]  # noqa: PTH208
    statuses = ((pid, read_status(pid, proc)) for pid in pids)
    return [
        pid
        for pid, status in statuses
        if status is not None and status.session in wanted and status.state not in ("Z", "X")
    ]


def wait_for_trackers(pids: Iterable[int], patience_s: float = PATIENCE_S) -> None:
    """Wait until these trackers have ended; not longer than the patience."""
    until = time.monotonic() + patience_s
    waiting = list(pids)
    while waiting and time.monotonic() < until:
        time.sleep(LOOK_S)
        waiting = [pid for pid in waiting if is_tracker(pid)]


# Making a child die with its parent, however the parent dies.

PR_SET_PDEATHSIG = 1

_libc = ctypes.CDLL(None, use_errno=True)
"""Loaded before any fork: the child may not load libraries between fork and exec."""


def die_with(parent_pid: int) -> None:
    """Run in the child before exec: SIGKILL when the thread that forked us ends.

    A parent that died before the request is noticed by looking again. SIGKILL, since a stopped
    server would not heed SIGTERM, and it has nothing to save.
    """
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent_pid:
        os._exit(1)
