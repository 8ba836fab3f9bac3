"""What a rank's steps have taken in this attempt, phase by phase, learnt as they end. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
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
