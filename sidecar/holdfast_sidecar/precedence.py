"""Being heard at once on a machine that is busy: who watches takes little, and must take it soon.

When a rank dies its peers fail too, and for a tenth of a second every core is theirs. Whatever the
kernel refuses (only a privileged process may ask for more than its share) is left as it is.

Imports little, because small children use it too.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct

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
