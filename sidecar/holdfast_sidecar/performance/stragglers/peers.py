"""Whom a rank is measured by: the median of the others, itself left out."""

from __future__ import annotations

import math
from array import array
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import NamedTuple

from holdfast_sidecar.performance.stragglers.frame import LONGEST_US, StepFrame
from holdfast_sidecar.records.steps import StepLine


class Others(NamedTuple):
    """The median of all but one, for every one at once: it depends only on which half it is in."""

    middle: float
    for_upper: float
    """For whoever is above the middle."""
    for_lower: float
    for_middle: float
    """For whoever lies on it."""

    def of(self, value: float) -> float:
        """The median of the others of whoever has this value."""
        if value > self.middle:
            return self.for_upper
        return self.for_lower if value < self.middle else self.for_middle


def others(values: Sequence[float]) -> Others:
    """Of two values or more."""
    ordered = sorted(values)
    half = len(ordered) // 2
    below, at = ordered[half - 1], ordered[half]
    if len(ordered) % 2 == 0:
        return Others((below + at) / 2, below, at, at)
    above = ordered[half + 1]
    return Others(at, (below + at) / 2, (at + above) / 2, (below + above) / 2)


FAR_OUT = 0.1
"""Of the middle one of three: what lies farther above it is no noise of a healthy job's."""


def excesses_of(values: Sequence[float]) -> list[float]:
    """How far each lies above the median of the others, as a part of it; the middle one not at all.

    Of three, that median is the mean of two, and one of them may be anywhere: for the lowest, it
    counts for no more than `FAR_OUT`. Else two that are well would seem restless beside one that is
    slow, as they take turns in being the lowest.
    """
    middle, upper, lower, _ = others(values)
    middle = max(middle, 1.0)
    if len(values) == 3:
        lower = min(lower, middle * (1.0 + FAR_OUT / 2))
    return [
        value / (upper if value > middle else lower if value < middle else middle) - 1.0
        for value in values
    ]


def spell_ranks(ranks: Sequence[int]) -> str:
    """`rank 3`, `ranks 3, 4 and 9`, `ranks 0, 1, 2, 3, 4, 5 and 12 more`."""
    ordered = sorted(ranks)
    if len(ordered) == 1:
        return f"rank {ordered[0]}"
    shown = ordered if len(ordered) <= 7 else ordered[:6]
    last = str(shown[-1]) if shown is ordered else f"{len(ordered) - 6} more"
    first = shown[:-1] if shown is ordered else shown
    return f"ranks {', '.join(map(str, first))} and {last}"


# What the lines of one role's ranks say of their own time, as far as it makes sense.

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


def alike(frame: StepFrame) -> StepFrame:
    """The frame with own times that cover the same parts for all ranks: where one can't tell what
    it waits for in its backward pass, nobody's backward pass is own time. Else all others would
    seem to take longer than it does."""
    lines = frame.lines
    if see_waits(lines.values()):
        return frame
    covered = {rank: line._replace(waits_seen=0) for rank, line in lines.items()}
    return replace(frame, lines=covered)


# What a usual step of a role takes in a frame, and beyond what one of its ranks stands out.

LEAST = 0.2
DEVIATIONS = 6.0
"""Beyond the middle of the role, in one frame: more than the tails of healthy ranks reach often."""

KEPT = 256
FEWEST = 16
"""Times beside the middle one: those of three ranks and eight frames."""


@dataclass
class RolePace:
    """Follows one role. A frame of three ranks says nothing of how much they vary, and where one of
    four is late, their quartile is that one: so it is asked of the frames before as well."""

    _apart: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT))

    def follow(self, own: Iterable[float]) -> tuple[float, float] | None:
        """The usual time, and the limit, by these ranks' own times; None: not known yet."""
        some = sorted(own)
        middle = (len(some) - 1) // 2
        usual = max(1.0, some[middle])
        limit = self._limit(usual)
        self._apart.extend(abs(one / usual - 1.0) for one in some[:middle] + some[middle + 1 :])
        return None if limit is None else (usual, limit)

    def _limit(self, usual: float) -> float | None:
        if len(self._apart) < FEWEST:
            return None
        # Half of a normal distribution lies within 0.67 deviations.
        sigma = sorted(self._apart)[len(self._apart) // 2] / 0.67
        return usual * (1.0 + max(LEAST, DEVIATIONS * sigma))


# Own times of thousands of ranks in a tenth of the room that a dictionary takes.

_NONE = math.nan
"""Of a rank that told nothing."""


class PackedTimes(Mapping[int, float]):
    """rank -> microseconds of a step; of ranks whose places in a row are known."""

    __slots__ = ("_places", "_us")

    def __init__(self, places: Mapping[int, int], own_us: Mapping[int, float]) -> None:
        self._places = places
        """rank -> where it stands in the row."""
        get = own_us.get
        self._us = array("d", [get(rank, _NONE) for rank in places])

    def __getitem__(self, rank: int) -> float:
        us = self._us[self._places[rank]]
        if math.isnan(us):
            raise KeyError(rank)
        return us

    def __iter__(self) -> Iterator[int]:
        return (rank for rank, at in self._places.items() if not math.isnan(self._us[at]))

    def __len__(self) -> int:
        return sum(1 for _ in self)
