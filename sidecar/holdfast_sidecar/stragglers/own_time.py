"""What the lines of one role's ranks say of their own time, as far as it makes sense."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import NamedTuple

from holdfast_sidecar.records.steps import StepLine

LONGEST_US = 3_600_000_000
"""An hour for one step: no step, but a clock that was set."""

PARTS = ("data", "transfer", "forward", "backward", "optimizer", "other")
"""Of a step, that are a rank's own work."""

parts_of = itemgetter(*(StepLine._fields.index(name) for name in PARTS))
_measured = itemgetter(
    *(StepLine._fields.index(name) for name in (*PARTS, "total", "waits_seen", "rank"))
)

_waits_seen = itemgetter(StepLine._fields.index("waits_seen"))


class Own(NamedTuple):
    """One rank's own time of a step, microseconds."""

    rank: int
    own: int
    compute: int
    """Of it what grows with the work: all but waiting for data and what is not known."""
    line: StepLine


class OwnTimes(NamedTuple):
    """Those of a role's ranks that can be compared, and those whose times make no sense."""

    times: list[Own]
    senseless: list[int]
    whole_us: float
    """A step of the median rank, from end to end."""


def own_times(lines: Sequence[StepLine]) -> OwnTimes:
    """Own times that cover the same parts of a step for all of them."""
    with_backward = all(map(_waits_seen, lines))
    times, senseless, totals = [], [], []
    for line in lines:
        data, transfer, forward, backward, optimizer, other, total, _, rank = _measured(line)
        # What others were waited for is in the backward of those who can't tell it apart.
        own_backward = backward if with_backward else 0
        compute = transfer + forward + own_backward + optimizer
        own = data + other + compute
        parts = (data, transfer, forward, backward, optimizer, other)
        if min(parts) < 0 or not 0 < total <= LONGEST_US or not 0 < own <= LONGEST_US:
            senseless.append(rank)
            continue
        times.append(Own(rank, own, compute, line))
        totals.append(total)
    totals.sort()
    return OwnTimes(times, senseless, totals[len(totals) // 2] if totals else 0.0)
