"""Whether all ranks take longer than they did: the job's own change, of which nobody is to blame.

Told by the own times of those at the lower and the upper quarter: one slow rank moves neither, and
what all wait for is nobody's own time.
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from holdfast_sidecar.performance.stragglers.frame import StepFrame
from holdfast_sidecar.performance.stragglers.peers import PARTS, parts_of, see_waits
from holdfast_sidecar.records.steps import PaceChange, StepLine

NEWEST = 10
"""Frames that must all be slower: a phase of a few steps is none, and ten show it."""

BEFORE = 64
"""Frames that they are compared with; noise of neighbouring steps is alike over far fewer."""

LEAST_BEFORE = 16

SLOWER = 1.2
"""Below that it is no news: clocks and caches make as much of a job that goes on for hours."""

OVER = 1.1
"""What is left of it when it is over."""

USUAL_MOST = 0.9
"""Of the frames before: what one in ten was longer than is usual, too."""

SAMPLE = 64
"""Ranks looked at, the same ones all the time: quarters of so many are within some percent of those
of thousands, and cost the leader next to nothing."""


class _Seen(NamedTuple):
    """One frame; microseconds of a step, own work."""

    after_step: int
    quick_us: float
    slow_us: float
    parts_us: tuple[float, ...]
    own_us: float
    """Their sum: of the mean rank."""
    tokens: float
    with_backward: bool
    """Whether backward passes are in it."""


@dataclass
class JobPace:
    """Follows the frames of one attempt."""

    _ranks: Sequence[int] = ()
    _newest: deque[_Seen] = field(default_factory=lambda: deque(maxlen=NEWEST))
    _before: deque[_Seen] = field(default_factory=lambda: deque(maxlen=BEFORE))
    _since_step: int = -1
    """-1: nothing has changed."""
    _odd: int = 0
    """Frames in a row that cover other parts of a step than those before."""

    def follow(self, frame: StepFrame) -> PaceChange | None:
        """What has changed for all of them, as of this frame."""
        seen = self._see(frame)
        if seen is not None and self._is_alike(seen):
            self._take(seen)
        return self._tell() if self._since_step >= 0 else None

    def _see(self, frame: StepFrame) -> _Seen | None:
        if not any(rank in frame.lines for rank in self._ranks):
            ranks = sorted(frame.lines)
            self._ranks = ranks[:: -(-len(ranks) // SAMPLE) or 1]
        lines = [frame.lines[rank] for rank in self._ranks if rank in frame.lines]
        # Half of them are not those that were looked at before.
        if not lines or 2 * len(lines) < len(self._ranks):
            return None
        return _see(lines, frame.after_step)

    def _is_alike(self, seen: _Seen) -> bool:
        """Whether it can be compared with those before; begins anew with what comes to stay."""
        if not self._newest or seen.with_backward == self._newest[-1].with_backward:
            self._odd = 0
            return True
        self._odd += 1
        if self._odd > NEWEST:
            self._newest.clear()
            self._before.clear()
            self._since_step, self._odd = -1, 0
        return self._odd == 0

    def _take(self, seen: _Seen) -> None:
        if len(self._newest) == NEWEST and self._since_step < 0:
            self._before.append(self._newest[0])
        self._newest.append(seen)
        if len(self._newest) < NEWEST:
            return
        if self._since_step >= 0:
            if _longer(self._newest, self._before) < OVER:
                self._since_step = -1
        elif len(self._before) >= LEAST_BEFORE:
            if self._are_quicker():
                self._before.clear()
            elif self._are_slower():
                self._since_step = self._newest[0].after_step + 1

    def _are_slower(self) -> bool:
        """All of the newest, at both quarters, and not for more work."""
        quick_us = min(one.quick_us for one in self._newest)
        grown = quick_us / max(1.0, _most(one.quick_us for one in self._before))
        if grown <= SLOWER:  # nearly always, and each frame asks
            return False
        slow_us = min(one.slow_us for one in self._newest)
        grown = min(grown, slow_us / max(1.0, _most(one.slow_us for one in self._before)))
        return grown > SLOWER * _more_work(self._newest, self._before)

    def _are_quicker(self) -> bool:
        most_us = SLOWER * max(one.own_us for one in self._newest)
        return all(most_us < one.own_us for one in self._before)

    def _tell(self) -> PaceChange:
        before, now = (_middle_us(some) for some in (self._before, self._newest))
        grown = [late - early for early, late in zip(before, now, strict=True)]
        return PaceChange(
            since_step=self._since_step,
            ratio=round(sum(now) / max(1.0, sum(before)), 3),
            before_s=sum(before) / 1e6,
            now_s=sum(now) / 1e6,
            part=PARTS[grown.index(max(grown))],
        )


def _see(lines: Sequence[StepLine], after_step: int) -> _Seen:
    rows = [parts_of(line) for line in lines]
    with_backward = see_waits(lines)
    if not with_backward:
        at = PARTS.index("backward")
        rows = [(*row[:at], 0, *row[at + 1 :]) for row in rows]
    own = sorted(map(sum, rows))
    tokens = [line.tokens for line in lines]
    parts_us = tuple(sum(column) / len(rows) for column in zip(*rows, strict=True))
    return _Seen(
        after_step,
        own[len(own) // 4],
        own[3 * len(own) // 4],
        parts_us,
        sum(parts_us),
        statistics.median(tokens) if all(tokens) else 0.0,
        with_backward,
    )


def _middle_us(some: Sequence[_Seen]) -> list[float]:
    """Part by part."""
    return [
        statistics.median(column) for column in zip(*(one.parts_us for one in some), strict=True)
    ]


def _longer(now: Sequence[_Seen], before: Sequence[_Seen]) -> float:
    return sum(_middle_us(now)) / max(1.0, sum(_middle_us(before)))


def _more_work(now: Sequence[_Seen], before: Sequence[_Seen]) -> float:
    """So many times the work; 1 where it is not known, or less than before."""
    early, late = (statistics.median(one.tokens for one in some) for some in (before, now))
    return max(1.0, late / early) if early and late else 1.0


def _most(values: Iterable[float]) -> float:
    """Of them, but for the few largest."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(USUAL_MOST * len(ordered)))]
