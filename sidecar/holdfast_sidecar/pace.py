"""What a rank's steps have taken in this attempt, phase by phase, learnt as they end. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter

from holdfast.page import Record
from holdfast_sidecar.durations import Durations

LEARNT = {
    part: f"{part}_us"
    for part in ("data", "forward", "backward", "communicating", "optimizer", "other", "transfer")
}
"""Parts of an ordinary step, and where a record has them. Saving, like whatever no record tells of,
comes rarely and varies without bound."""

_learnt: Callable[[Record], tuple[int, ...]] = attrgetter(*LEARNT.values())

WARM_UP_STEPS = 2
"""The first step compiles and warms caches, the second still rebuilds DDP's buckets: both may take
a thousand times what follows, and say nothing about it."""


@dataclass(frozen=True)
class Pace:
    """Durations by part of a step."""

    steps: int = 0
    """Steps that ended so far in this attempt, as far as this sidecar saw them."""
    parts: Mapping[str, Durations] = field(default_factory=dict)

    @property
    def steps_learnt(self) -> int:
        """Steps that count."""
        return max(0, self.steps - WARM_UP_STEPS)

    def after(self, records: Sequence[Record]) -> Pace:
        """The pace once these steps have ended."""
        if not records:
            return self
        telling = records[max(0, WARM_UP_STEPS - self.steps) :]
        columns = list(zip(*map(_learnt, telling), strict=True)) or [()] * len(LEARNT)
        parts = {
            part: self.parts.get(part, Durations()).with_more(column)
            for part, column in zip(LEARNT, columns, strict=True)
        }
        return Pace(self.steps + len(records), parts)


WINDOWS_KEPT = 8
"""So many of the latest count: one that was longer by chance is forgotten within the hour."""


@dataclass(frozen=True)
class Windows:
    """What lies between two calls of the optimizer: where gradients are gathered over many steps, a
    rank can be saved only at the end of such a window."""

    calls: int = 0
    """Of the optimizer, in this attempt."""
    gathered_us: int = 0
    """What the steps since the newest call took."""
    latest_us: tuple[int, ...] = ()
    """What its latest windows took, without what comes rarely: saving, evaluating, compiling."""

    @property
    def longest_s(self) -> float:
        """Of the latest; 0 while none is known."""
        return max(self.latest_us, default=0) / 1e6

    def after(self, records: Sequence[Record], calls: int) -> Windows:
        """The windows once these steps have ended, and the optimizer was called so often in all."""
        more = calls - self.calls
        if not records and more == 0:
            return self
        gathered_us = self.gathered_us + sum(map(_ordinary_us, records))
        if more <= 0:
            return replace(self, gathered_us=gathered_us)
        if self.calls == 0 and calls > 1:  # how long the first of them took was not seen
            return Windows(calls)
        latest_us = (*self.latest_us, gathered_us // more)[-WINDOWS_KEPT:]
        return Windows(calls, 0, latest_us)


def _ordinary_us(record: Record) -> int:
    return record.total_us - record.saving_us - record.evaluating_us - record.compiling_us
