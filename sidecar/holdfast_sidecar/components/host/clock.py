"""The wall clock: whether it is kept by a time source, how far off it is, whether it was set."""

from __future__ import annotations

import ctypes
import itertools
import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from holdfast_sidecar.components.host.readings import Clock, HostReading
from holdfast_sidecar.records.codec import decode
from holdfast_sidecar.records.findings import Finding, Kind, Moment
from holdfast_sidecar.records.reports import NodeReport

UNSYNCHRONISED = 5
"""TIME_ERROR of adjtimex(2)."""

NANOSECONDS = 0x2000
"""STA_NANO: the offset is in nanoseconds rather than microseconds."""

_TIMEX = struct.Struct("@Iqqqqi")
"""The beginning of struct timex: modes, offset, freq, maxerror, esterror, status."""

_ROOM_BYTES = 512
"""For struct timex, which has 208 bytes on 64-bit Linux."""


def read_clock() -> Clock | None:
    """What the kernel says; with no mode set adjtimex(2) only reads. None where it won't."""
    timex = ctypes.create_string_buffer(_ROOM_BYTES)
    try:
        state = int(ctypes.CDLL(None).adjtimex(timex))
    except (AttributeError, OSError):
        return None
    return None if state < 0 else parse_timex(state, timex.raw)


def parse_timex(state: int, timex: bytes) -> Clock:
    """Parse what adjtimex(2) answered and filled in."""
    _, offset, _, most_error, _, status = _TIMEX.unpack_from(timex)
    unit = 1e-9 if status & NANOSECONDS else 1e-6
    return Clock(state != UNSYNCHRONISED, offset * unit, most_error * 1e-6)


def read_apart_s() -> float:
    """Wall clock less the time since boot, sleep included."""
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)


# A wall clock that can't be trusted beside those of other nodes.
#
# A clock that has been without a time source since we look is no finding: many virtual machines are
# kept right by their host and say so to nobody. `holdfast doctor` tells of it.

OFFSET_S = 0.05
"""Far more than a network's time source leaves (milliseconds), and what node-mixin warns at: by
then stories of several nodes are told in the wrong order."""

JUMP_S = 0.5
"""Time sources turn the clock slowly where they can, at half a millisecond a second: 0.02 s between
two of our looks. What jumps was set, or carried off with the virtual machine."""

TOLD_FOR_S = 600.0
"""A jump is told for so long: long enough to be seen, and to explain what was judged beside it."""


def find_clock_troubles(host: HostReading, moment: Moment) -> Iterator[Finding]:
    """The time source was lost, the clock is far from it, or it was set."""
    clock = host.clock
    if clock is not None:
        if clock.is_synchronised and abs(clock.offset_s) >= OFFSET_S:
            text = f"the clock is {clock.offset_s * 1e3:+.0f} ms from its time source"
            yield _finding(moment, text, "offset")
        if not clock.is_synchronised and any(one.was_synchronised for one in host.earlier):
            yield _finding(moment, "the clock has lost its time source", "source")
    jump_s = _jump_s(host)
    if abs(jump_s) >= JUMP_S:
        yield _finding(moment, f"the clock was set by {jump_s:+.1f} s", "jump")


def _jump_s(host: HostReading) -> float:
    """The largest of late, between two looks."""
    if host.now is None:
        return 0.0
    since_s = host.now.at_s - TOLD_FOR_S
    lately = [tally for tally in (*host.earlier, host.now) if tally.at_s >= since_s]
    known = [tally.clock_apart_s for tally in lately if tally.clock_apart_s is not None]
    steps = [after - before for before, after in itertools.pairwise(known)]
    return max(steps, key=abs, default=0.0)


def _finding(moment: Moment, text: str, what: str) -> Finding:
    return Finding(Kind.CLOCK_OFF, moment.node, moment.now_unix_s, 0.9, evidence=[text], what=what)


# This node's wall clock beside those of the other nodes, by the times in their reports.

EVERY_S = 30.0
"""Clocks drift apart over days; one that is set is noticed soon enough."""

BETWEEN_S = 1.0
"""Two looks so far apart: every node that lives has reported in between."""

LEAST_OTHERS = 2
"""Between two clocks nobody can tell which one is wrong."""

LEAST_S = 5.0
"""A report is a second or two old when it is read: less could be just that."""


def how_far_off(ahead_s: Sequence[float], limit_s: float) -> float:
    """By how much this clock is wrong, if most of the others say so; 0: they don't.

    ahead_s: of each other node, by how much this clock is ahead of its.
    """
    limit_s = max(limit_s, LEAST_S)
    if len(ahead_s) < LEAST_OTHERS:
        return 0.0
    for sign in (1.0, -1.0):
        apart = [ahead for ahead in ahead_s if sign * ahead > limit_s]
        if 2 * len(apart) > len(ahead_s):
            return median(apart)
    return 0.0


@dataclass
class ClockWatch:
    """Now and then looks twice: only a report whose beat moved in between is of now."""

    node: str
    limit_s: float
    off_s: float = 0.0
    _due_s: float = float("-inf")
    _beats: dict[str, int] = field(default_factory=dict)

    def look(self, reports: Mapping[str, str], now_s: float, now_unix_s: float) -> float:
        """By how much this clock is wrong, as far as is known; 0: it is right."""
        if now_s < self._due_s:
            return self.off_s
        found = {name: decode(NodeReport, text) for name, text in reports.items()}
        others = [one for one in found.values() if one is not None and one.node != self.node]
        before, self._beats = self._beats, {one.node: one.beat for one in others}
        if self._beats and not before:
            self._due_s = now_s + BETWEEN_S  # the first of two looks
            return self.off_s
        fresh = [one for one in others if before.get(one.node, one.beat) != one.beat]
        times = [one.gate.checked_unix_s for one in fresh if one.gate is not None]
        self.off_s = how_far_off([now_unix_s - at for at in times if at], self.limit_s)
        self._due_s, self._beats = now_s + EVERY_S, {}
        return self.off_s
