"""Ranks that compile again and again after the first steps, and what it costs them.

Steps in which something was compiled are no ordinary ones: what ranks are compared by leaves them
out, so it is counted here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from holdfast_sidecar.performance.stragglers.causes import Named, advise
from holdfast_sidecar.performance.stragglers.placement import Place
from holdfast_sidecar.performance.stragglers.trouble import Trouble, lasts
from holdfast_sidecar.records.steps import Cause, StepLine

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


# The trouble of ranks that compile again and again: one for all of them, as it is the script's.

SURE = 0.9


def compilers(
    found: Sequence[Recompiling], places: Mapping[int, Place], step: int, step_us: float
) -> list[Trouble]:
    """None or one."""
    known = [one for one in found if one.rank in places]
    if not known:
        return []
    worst = max(known, key=lambda one: one.lost_us)
    nodes = {places[one.rank].node for one in known}
    steps = step - worst.since_step + 1
    text = (
        f"rank {worst.rank} compiled something in {worst.times} of {steps} steps, which took "
        f"{worst.lost_us / 1e3:.1f} ms a step"
    )
    since = min(one.since_step for one in known)
    return [
        Trouble(
            ranks=tuple(sorted(one.rank for one in known)),
            node=nodes.pop() if len(nodes) == 1 else "",
            role="",
            named=Named(
                Cause.RECOMPILATION, SURE, (text,), advise(Cause.RECOMPILATION), "compiling"
            ),
            slowdown=worst.lost_us / max(1.0, step_us),
            confidence=SURE,
            since_step=since,
            is_persistent=lasts(since, step, step_us / 1e6),
            accounts=("compilers",),
            extra_us=worst.lost_us,
        )
    ]
