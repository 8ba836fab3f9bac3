"""Threads beside a loop. Where a machine has none left (`pids.max`, `ulimit -u`), what a thread was
for has to wait; whoever asked for it goes on.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast_sidecar.config.settings import BadInput

PATIENCE_S = 3.0
"""What an earlier job of this machine leaves behind is gone by then."""

AGAIN_S = 0.1

NONE_LEFT = "no thread can be started"

MORE_THREADS = "raise pids.max of its control group (docker --pids-limit), or `ulimit -u`"


def start_thread(
    work: Callable[..., object], name: str, args: tuple[Any, ...] = ()
) -> threading.Thread | None:
    """A daemon thread at work; None where none can be started now: ask again later."""
    thread = threading.Thread(target=work, name=name, args=args, daemon=True)
    try:
        thread.start()
    except RuntimeError:
        return None
    return thread


def start_patiently(
    work: Callable[..., object], name: str, patience_s: float | None = None
) -> threading.Thread | None:
    """The same for what nobody asks for again: tried for a while (PATIENCE_S)."""
    end_s = time.monotonic() + (PATIENCE_S if patience_s is None else patience_s)
    while True:
        thread = start_thread(work, name)
        if thread is not None or time.monotonic() >= end_s:
            return thread
        time.sleep(AGAIN_S)


def start_needed_thread(work: Callable[..., object], name: str) -> threading.Thread:
    """The same for what nothing goes on without. Raises BadInput."""
    thread = start_patiently(work, name)
    if thread is None:
        raise BadInput(f"{NONE_LEFT} ({name}): {MORE_THREADS}")
    return thread


# Being heard at once on a machine that is busy: who watches takes little, and must take it soon.
#
# When a rank dies its peers fail too, and for a tenth of a second every core is theirs. Whatever
# the kernel refuses (only a privileged process may ask for more than its share) is left as it is.
#
# Imports little, because small children use it too.

NICENESS = -10
"""Ten times the share of a rank, of which a hundredth is used."""

SLICE_NS = 100_000
"""The least that the kernel knows (Linux 6.12): who asks for less at a time gets it sooner. Anyone
may ask for it."""

AUTOGROUP = "/proc/self/autogroup"
"""Niceness of this process's session, where the kernel deals shares out by sessions."""

_SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}
_ATTRIBUTES = struct.Struct("<IIQiIQQQ")
"""struct sched_attr: size, policy, flags, nice, priority, runtime, deadline, period."""


def take() -> None:
    """For this thread and all that it will start, children included."""
    _set(NICENESS, SLICE_NS)


def give_back() -> None:
    """A child that has work to do takes its turn like anybody else."""
    _set(0, 0)


def _set(niceness: int, slice_ns: int) -> None:
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, niceness)
    # Niceness as it came out, or the next call would ask for another one.
    attributes = _ATTRIBUTES.pack(
        _ATTRIBUTES.size, os.SCHED_OTHER, 0, os.getpriority(os.PRIO_PROCESS, 0), 0, slice_ns, 0, 0
    )
    if (number := _SCHED_SETATTR.get(os.uname().machine)) is not None:
        ctypes.CDLL(None).syscall(number, 0, attributes, 0)
    # Where shares are dealt out by sessions: a shell's or a scheduler's is not ours to change.
    if os.getsid(0) == os.getpid():
        with contextlib.suppress(OSError), open(AUTOGROUP, "w") as file:  # noqa: PTH123 - see above
            file.write(str(niceness))


# Giving way: little CPU, and the disk only when nobody else wants it.

PRIORITY = 10
"""Of a thread: a tenth of a core that ranks keep busy. It may never be raised again, so it is not
the least, 19: where all cores are busy, importing torch alone would take minutes."""

SESSION_PRIORITY = 15
"""Of a session: a thirtieth, and whatever ranks leave while they wait for each other; a tenth is
felt in every step. It has an end, so that it may be so little."""

HURRY_PATIENCE_S = 8.0
"""Where more ranks compute than there are cores nothing would be left: whoever asks for a
checkpoint, and the next periodic one, would wait for minutes. So the giving way has an end."""

TRIES = 5
REFUSED_FOR_S = 0.1
"""The kernel takes a change from one ordinary process of the machine so often, and no oftener."""

_IOPRIO_SET = {"x86_64": 251, "aarch64": 30}
_WHO_PROCESS = 1
_CLASS_IDLE = 3 << 13


def be_meek() -> None:
    """This thread only, on Linux: quick questions are answered by others at ordinary priority."""
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), PRIORITY)
    number = _IOPRIO_SET.get(platform.machine())
    if number is not None:  # no wrapper in libc; a kernel that refuses leaves things as they are
        ctypes.CDLL(None).syscall(number, _WHO_PROCESS, 0, _CLASS_IDLE)


class Session:
    """This process's share of the machine where the kernel deals it out by sessions.

    There (`sched_autogroup_enabled`, outside of control groups) a thread's niceness counts only
    against threads of its own session, and every rank leads one. So the session of its own that
    the writer leads is made nice as a whole; unlike a thread it may be raised again.
    """

    def __init__(self, file: Path = Path(AUTOGROUP)) -> None:
        self._file = file
        self._priority = 0
        self._end: threading.Timer | None = None
        self._lock = threading.Lock()

    def give_way(self) -> None:
        """Until somebody waits for an answer, HURRY_PATIENCE_S at most."""
        self._set(SESSION_PRIORITY)
        if self._end is not None:
            self._end.cancel()
        self._end = threading.Timer(HURRY_PATIENCE_S, self.stand_up)
        self._end.daemon = True
        try:
            self._end.start()
        except RuntimeError:  # no thread is left that would end it
            self.stand_up()

    def stand_up(self) -> None:
        """Somebody waits."""
        self._set(0)

    def _set(self, priority: int) -> None:
        with self._lock:
            for _ in range(TRIES if priority != self._priority else 0):
                try:
                    self._file.write_text(str(priority))
                except BlockingIOError:
                    time.sleep(REFUSED_FOR_S)
                except OSError:
                    return  # another kernel: niceness counts for threads
                else:
                    self._priority = priority
                    return
