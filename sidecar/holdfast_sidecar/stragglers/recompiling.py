"""Ranks that compile again and again after the first steps, and what it costs them.

Steps in which something was compiled are no ordinary ones: what ranks are compared by leaves them
out, so it is counted here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from holdfast_sidecar.records.steps import StepLine

WARM_UP_STEPS = 16
"""A model is compiled in its first step, once more when sizes turn out to change, and once each
for what an optimizer or a schedule does differently in the first ones."""

WITHIN_STEPS = 32
TIMES = 3
"""So many blocks of steps among those had something compiled: a smaller last batch of an epoch
makes one, a change of precision or of a schedule another."""

FEWEST_BLOCKS = 4
"""Where a block is longer, so many of them are looked at."""

LEAST_SHARE = 0.05
"""Of the step time."""

KEPT = 16


@dataclass(frozen=True)
class Recompiling:
    """One rank that does."""

    rank: int
    share: float
    """Of its steps."""
    lost_us: float
    """Per step."""
    since_step: int
    times: int


@dataclass
class Recompilations:
    """Follows one attempt."""

    _first_step: int | None = None
    _seen: dict[int, deque[StepLine]] = field(default_factory=dict)

    def take(self, lines: Iterable[StepLine]) -> None:
        """Any lines, also such as were seen before."""
        some = list(lines)
        if self._first_step is None and some:
            # A new leader counts from what it saw first itself.
            self._first_step = min(line.step - line.stride for line in some)
        for line in some:
            if line.compiled:
                seen = self._seen.setdefault(line.rank, deque(maxlen=KEPT))
                if not seen or line.step > seen[-1].step:
                    seen.append(line)

    def judge(self, step: int, total_us: float) -> tuple[Recompiling, ...]:
        """Those who do now."""
        self._seen = {r: s for r, s in self._seen.items() if step - s[-1].step <= 2 * KEPT * 64}
        found = (self._of(rank, seen, step, total_us) for rank, seen in self._seen.items())
        return tuple(one for one in found if one is not None)

    def _of(
        self, rank: int, seen: deque[StepLine], step: int, total_us: float
    ) -> Recompiling | None:
        warm = (self._first_step or 0) + WARM_UP_STEPS
        span = max(WITHIN_STEPS, FEWEST_BLOCKS * seen[-1].stride)
        late = [one for one in seen if one.step - one.stride >= warm and one.step > step - span]
        times = sum(one.compiled for one in late)
        if len(late) < TIMES or times < TIMES:
            return None
        since = late[0].step - late[0].stride
        steps = max(1, step - since)
        lost_us = sum(one.lost * one.stride for one in late) / steps
        if lost_us < LEAST_SHARE * total_us:
            return None
        return Recompiling(rank, times / steps, lost_us, since + 1, times)
