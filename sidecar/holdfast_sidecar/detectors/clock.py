"""A wall clock that can't be trusted beside those of other nodes.

A clock that has been without a time source since we look is no finding: many virtual machines are
kept right by their host and say so to nobody. `holdfast doctor` tells of it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from holdfast_sidecar.readings.host import HostReading
from holdfast_sidecar.records.clock import Moment
from holdfast_sidecar.records.findings import Finding, Kind

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
