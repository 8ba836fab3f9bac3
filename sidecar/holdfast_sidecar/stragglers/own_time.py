"""What the lines of one role's ranks say of their own time, as far as it makes sense."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import NamedTuple

from holdfast_sidecar.records.steps import StepLine
from holdfast_sidecar.stragglers.frame import LONGEST_US, Frame

PARTS = ("data", "transfer", "forward", "backward", "optimizer", "other")
"""Of a step, that are a rank's own work."""

parts_of = itemgetter(*(StepLine._fields.index(name) for name in PARTS))
_measured = itemgetter(*(StepLine._fields.index(name) for name in (*PARTS, "total", "rank")))
_waits_seen = itemgetter(StepLine._fields.index("waits_seen"))


class OwnTimes(NamedTuple):
    """Those of a role's ranks that can be compared, in columns; microseconds of a step."""

    ranks: list[int]
    own: list[int]
    compute: list[int]
    """Of it what grows with the work: all but waiting for data and what is not known."""
    lines: Sequence[StepLine]
    whole_us: float
    """A step of the median rank, from end to end."""
    senseless: list[int]
    """Ranks that can't be compared, as their times make no sense."""


def own_times(lines: Sequence[StepLine]) -> OwnTimes:
    """Own times that cover the same parts of a step for all of them."""
    with_backward = see_waits(lines)
    ranks, own_us, compute_us, kept, senseless, totals = [], [], [], [], [], []
    for line in lines:
        data, transfer, forward, backward, optimizer, other, total, rank = _measured(line)
        # What others were waited for is in the backward of those who can't tell it apart.
        if not with_backward:
            backward = 0
        compute = transfer + forward + backward + optimizer
        own = compute + data + other
        # The sign of them all in one look: or-ed numbers are negative where one of them is.
        negative = (data | transfer | forward | backward | optimizer | other) < 0
        if negative or not 0 < own <= LONGEST_US or not 0 < total <= LONGEST_US:
            senseless.append(rank)
            continue
        ranks.append(rank)
        own_us.append(own)
        compute_us.append(compute)
        kept.append(line)
        totals.append(total)
    totals.sort()
    whole_us = float(totals[len(totals) // 2]) if totals else 0.0
    return OwnTimes(ranks, own_us, compute_us, kept, whole_us, senseless)


def see_waits(lines: Iterable[StepLine]) -> bool:
    """Whether all of them tell what they wait for in the backward pass from their work."""
    return all(map(_waits_seen, lines))


def alike(frame: Frame) -> Frame:
    """The frame with own times that cover the same parts for all ranks: where one can't tell what
    it waits for in its backward pass, nobody's backward pass is own time. Else all others would
    seem to take longer than it does."""
    lines = frame.lines
    if see_waits(lines.values()):
        return frame
    covered = {rank: line._replace(waits_seen=0) for rank, line in lines.items()}
    return replace(frame, lines=covered)
