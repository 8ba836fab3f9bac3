"""Where a thread waits: what /proc/PID/task/TID/syscall and the thread's arguments say. Pure.

The numbers are those of Linux on x86-64; elsewhere nothing is known, so nothing is proven.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

MACHINE = "x86_64"


class Where(str, Enum):
    """What kind of thing a thread waits for."""

    CPU = "cpu"  # runs, or is about to
    LOCK = "lock"  # another thread, through a futex
    SLEEP = "sleep"
    SIGNAL = "signal"
    CHILD = "child"
    QUEUE = "queue"  # a pipe, a FIFO, a Unix socket of its own, an event descriptor
    PROCESS = "another process"  # of this machine: at a Unix socket's other end, or at a lock
    DEVICE = "a device"  # a GPU's driver, mostly; a terminal, too
    NETWORK = "network"  # a connection to another process over TCP or UDP
    STORAGE = "storage"  # a file, or a call about files
    OTHER = "other"


@dataclass(frozen=True)
class SystemCall:
    """A system call that a thread is in."""

    number: int
    arguments: tuple[int, ...]
    stack_pointer: int
    program_counter: int


@dataclass(frozen=True)
class ThreadWait:
    """A thread's wait. The same call from the same place of the stack is the same wait."""

    where: Where
    place: tuple[int, int, int] = (0, 0, 0)
    """Number of the call, stack pointer, program counter."""
    ends_unaided_s: float = math.inf
    """It ends by itself within this many seconds; infinite: only if something else happens."""


READ, POLL, IOCTL, SELECT, CONNECT = 0, 7, 16, 23, 42
FUTEX, NANOSLEEP, CLOCK_NANOSLEEP = 202, 35, 230
PSELECT, PPOLL, SIGTIMEDWAIT = 270, 271, 128
EPOLL_WAIT, EPOLL_PWAIT, EPOLL_PWAIT2 = 232, 281, 441

ON_DESCRIPTOR = frozenset(
    {0, 1, 16, 17, 18, 19, 20, 42, 43, 44, 45, 46, 47, 288, 295, 296, 299, 307}
)
"""read, write, ioctl, pread64, pwrite64, readv, writev, connect, accept, sendto, recvfrom, sendmsg,
recvmsg, accept4, preadv, pwritev, recvmmsg, sendmmsg: the first argument is the descriptor."""

ON_EPOLL = frozenset({232, 281, 441})
"""epoll_wait, epoll_pwait, epoll_pwait2."""

ON_POLL = frozenset({POLL, PPOLL})
"""An array of descriptors lies in memory at the first argument."""

ON_SELECT = frozenset({SELECT, PSELECT})
"""Without descriptors they are a sleep: Python's own, before 3.11."""

PAGE_FAULT = -1
"""No call: memory that lies in a file, or was swapped out, is being read."""

ON_FILES = frozenset(
    {
        *(PAGE_FAULT, 2, 4, 5, 6, 26, 40, 73, 74, 75, 76, 77, 78, 82, 87, 162, 187, 208, 217),
        *(257, 262, 275, 277, 285, 326, 332, 426),
    }
)
"""open, stat, fstat, lstat, msync, sendfile, flock, fsync, fdatasync, truncate, ftruncate,
getdents, rename, unlink, sync, readahead, io_getevents, getdents64, openat, newfstatat, splice,
sync_file_range, fallocate, copy_file_range, statx, io_uring_enter."""

ON_MEMORY = frozenset(
    {
        *(9, 10, 11, 12, 25, 28, 30, 56, 57, 58, 59, 67),
        *(149, 150, 151, 152, 216, 237, 322, 325, 329, 435),
    }
)
"""mmap, mprotect, munmap, brk, mremap, madvise, shmat, clone, fork, vfork, execve, shmdt, mlock,
munlock, mlockall, munlockall, remap_file_pages, mbind, execveat, mlock2, pkey_mprotect, clone3:
they lock the memory of the whole process."""

IN_A_PIPE = "pipe_"
"""In the names of the kernel's functions (`wchan`) that wait for what a pipe or a FIFO brings."""

IN_A_FREEZER = ("freezer", "refrigerator")
"""The same of those that keep a task whose control group is frozen (`do_freezer_trap`, v2)."""

ON_CHILD = frozenset({61, 247})
"""wait4, waitid."""

ON_SIGNAL = frozenset({34, 128, 130})
"""pause, rt_sigtimedwait, rt_sigsuspend."""

TIMER_ABSTIME = 1
CLOCK_REALTIME = 0
_FUTEX_COMMAND = 0x7F
_FUTEX_PRIVATE = 0x80
_FUTEX_WAIT_BITSET = 9
_FUTEX_CLOCK_REALTIME = 256
_TIMESPEC = struct.Struct("<qq")
TIMESPEC_BYTES = _TIMESPEC.size


def parse_call(text: str) -> SystemCall | None:
    """Parse a `syscall` file; None for a thread that runs. Number -1: blocked outside any call."""
    fields = text.split()
    if len(fields) == 3:  # a page fault that has to be served first
        return SystemCall(PAGE_FAULT, (0,) * 6, int(fields[1], 0), int(fields[2], 0))
    if len(fields) != 9:
        return None
    number, *values = (int(field, 0) for field in fields)
    return SystemCall(number, tuple(values[:6]), values[6], values[7])


def place_of(call: SystemCall) -> tuple[int, int, int]:
    """What makes two looks find one and the same wait."""
    return (call.number, call.stack_pointer, call.program_counter)


def timer_address(call: SystemCall) -> int:
    """Where in the thread's memory lies when its wait ends by itself; 0: it has no such end."""
    if call.number == FUTEX:
        return call.arguments[3]
    if call.number == CLOCK_NANOSLEEP:
        return call.arguments[2]
    if call.number in ON_SELECT:
        return call.arguments[4]
    if call.number in (PPOLL, SIGTIMEDWAIT):
        return call.arguments[2]
    if call.number == EPOLL_PWAIT2:
        return call.arguments[3]
    return call.arguments[0] if call.number == NANOSLEEP else 0


def parse_end_s(call: SystemCall, timespec: bytes, now_s: float, now_unix_s: float) -> float:
    """Seconds until the timer at `timer_address` ends the wait; at most, where it is relative."""
    if len(timespec) < TIMESPEC_BYTES:
        return 0.0
    seconds, nanoseconds = _TIMESPEC.unpack_from(timespec)
    until_s = float(seconds + nanoseconds / (1e6 if call.number == SELECT else 1e9))
    if call.number == FUTEX:
        operation = call.arguments[1]
        is_absolute = operation & _FUTEX_COMMAND == _FUTEX_WAIT_BITSET
        is_unix = bool(operation & _FUTEX_CLOCK_REALTIME)
    else:
        is_absolute = call.number == CLOCK_NANOSLEEP and bool(call.arguments[1] & TIMER_ABSTIME)
        is_unix = call.number == CLOCK_NANOSLEEP and call.arguments[0] == CLOCK_REALTIME
    if not is_absolute:
        return until_s
    return max(0.0, until_s - (now_unix_s if is_unix else now_s))


def ends_by_itself_s(call: SystemCall) -> float:
    """Seconds after which a wait without a timer in memory ends at most; mostly infinite."""
    if call.number == POLL:
        milliseconds = call.arguments[2]
    elif call.number in (EPOLL_WAIT, EPOLL_PWAIT):
        milliseconds = call.arguments[3]
    else:
        return math.inf
    milliseconds &= 0xFFFFFFFF
    return math.inf if milliseconds >= 0x80000000 else milliseconds / 1e3


def is_shared_lock(call: SystemCall) -> bool:
    """Whether another process may let it go: the memory that it lies in may be shared."""
    return call.number == FUTEX and not call.arguments[1] & _FUTEX_PRIVATE


def is_mere_sleep(call: SystemCall) -> bool:
    """Whether it waits for none of the descriptors that it might wait for."""
    return call.number in ON_SELECT and call.arguments[0] == 0


def where_of(
    number: int,
    targets: frozenset[str],
    connected: frozenset[str],
    elsewhere: frozenset[str] = frozenset(),
) -> Where:
    """What kind of wait a call is.

    targets: what its descriptors are (`/proc/PID/fd/N` read as links; a FIFO, which has a path,
    as `fifo:PATH`), where it has any.
    connected: those of the process that are network connections.
    elsewhere: those that are Unix sockets of which another process may hold the other end.
    """
    if number == FUTEX:
        return Where.LOCK
    if number in (NANOSLEEP, CLOCK_NANOSLEEP):
        return Where.SLEEP
    if number in ON_SIGNAL:
        return Where.SIGNAL
    if number in ON_CHILD:
        return Where.CHILD
    if number in ON_FILES:
        return Where.STORAGE
    if number in ON_DESCRIPTOR | ON_POLL | ON_EPOLL:
        return _where_from(targets, connected, elsewhere)
    return Where.OTHER


def _where_from(
    targets: frozenset[str], connected: frozenset[str], elsewhere: frozenset[str]
) -> Where:
    if not targets:
        return Where.OTHER
    if targets & connected:
        return Where.NETWORK
    if targets & elsewhere:
        return Where.PROCESS
    if any(target.startswith("/dev/") for target in targets):
        return Where.DEVICE
    if any(target.startswith("/") for target in targets):
        return Where.STORAGE
    return Where.QUEUE


def parse_pollfds(memory: bytes) -> list[int]:
    """Descriptors of an array of `struct pollfd`."""
    return [
        fd for fd, _, _ in struct.iter_unpack("<ihh", memory[: len(memory) // 8 * 8]) if fd >= 0
    ]


def parse_epoll(text: str) -> list[int]:
    """Descriptors that an epoll descriptor watches, from its `fdinfo`."""
    lines = (line.split() for line in text.splitlines() if line.startswith("tfd:"))
    return [int(fields[1]) for fields in lines if len(fields) > 1 and fields[1].isdecimal()]


LISTENING = 0x0A


def parse_connections(text: str) -> frozenset[str]:
    """Inodes of the sockets in /proc/PID/net/tcp (tcp6, udp, udp6) that have another end."""
    found = set()
    for line in text.splitlines()[1:]:
        fields = line.split()
        if len(fields) > 9 and not fields[2].endswith(":0000") and int(fields[3], 16) != LISTENING:
            found.add(f"socket:[{fields[9]}]")
    return frozenset(found)


ESTABLISHED = 0x03


def parse_unix_connections(text: str) -> frozenset[str]:
    """Inodes of the Unix sockets in /proc/PID/net/unix that have another end."""
    found = set()
    for line in text.splitlines()[1:]:
        fields = line.split()
        if len(fields) > 6 and int(fields[5], 16) == ESTABLISHED:
            found.add(f"socket:[{fields[6]}]")
    return frozenset(found)


DRIVERS = ("libcuda.so", "libamdhip64.so", "libhsa-runtime64.so")
"""Begin the names of the libraries through which a process waits for its GPU."""

GPU_FILES = ("/dev/nvidia", "/dev/kfd")
"""Begin the names of the files that a process with a GPU holds open."""

STACK_BYTES = 8192
"""So much of a thread's stack shows what it is in: a wait is a few calls below the one that asked
for it, of some hundred bytes each."""


def parse_code(maps: str, libraries: tuple[str, ...]) -> list[tuple[int, int]]:
    """From where to where the code of these libraries lies, from /proc/PID/maps."""
    found = []
    for line in maps.splitlines():
        fields = line.split(maxsplit=5)
        is_code = len(fields) == 6 and "x" in fields[1]
        if is_code and fields[5].rpartition("/")[2].startswith(libraries):
            begin, _, end = fields[0].partition("-")
            found.append((int(begin, 16), int(end, 16)))
    return found


def returns_into(stack: bytes, code: list[tuple[int, int]]) -> bool:
    """Whether an address in this piece of a stack lies in such code. What an earlier call left
    there looks the same: an error in this direction only takes a proof away."""
    # By what the upper five bytes of such an address can be: to compare word by word takes ten
    # times as long, for hundreds of threads.
    highs = {high for begin, end in code for high in range(begin >> 24, ((end - 1) >> 24) + 1)}
    return any(
        begin <= word < end
        for high in highs
        for word in _words_with(stack, high.to_bytes(5, "little"))
        for begin, end in code
    )


def _words_with(stack: bytes, high: bytes) -> Iterator[int]:
    """Its words of which the upper five bytes are these."""
    at = next((at for at, byte in enumerate(high) if byte), 0)  # most bytes of a stack are zero
    alike = stack[3 + at : len(stack) // 8 * 8 : 8]
    number = alike.find(high[at])
    while number >= 0:
        word = stack[8 * number : 8 * number + 8]
        if word.endswith(high):
            yield int.from_bytes(word, "little")
        number = alike.find(high[at], number + 1)
