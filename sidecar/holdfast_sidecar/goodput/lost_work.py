"""What a restart loses: training since the step that it goes on from, which has to be done again.

Productive time that still stands (its net) grows with the steps and falls back to what it was at
the step that was resumed from; what it falls by is lost. Marks along the way say how much stood at
which step. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast_sidecar.records.account import Mark

MARKS_KEPT = 24
"""Between two marks time is taken to grow evenly with the steps, so that few will do: close ones
for the newest steps, to which snapshots go back, and ever wider ones before."""

NEWEST_KEPT = 8


def with_mark(marks: Sequence[Mark], mark: Mark) -> tuple[Mark, ...]:
    """With one more, at its end; of the older ones every second is dropped when there are many."""
    if marks and mark.step <= marks[-1].step:
        return tuple(marks)
    grown = [*marks, mark]
    if len(grown) > MARKS_KEPT:
        old = grown[1:-NEWEST_KEPT]
        grown = [grown[0], *old[1::2], *grown[-NEWEST_KEPT:]]
    return tuple(grown)


def net_at(marks: Sequence[Mark], step: int, reached: Mark) -> int:
    """What stood when this step was completed. reached: how far it came, and what stood then."""
    earlier = [mark for mark in marks if mark.step < reached.step]
    path = [*earlier, reached]
    if step >= reached.step:
        return reached.net_us
    if step <= path[0].step:
        return min(path[0].net_us, reached.net_us)
    index = next(i for i, mark in enumerate(path) if mark.step >= step)
    before, after = path[index - 1], path[index]
    part = (step - before.step) / (after.step - before.step)
    return min(round(before.net_us + part * (after.net_us - before.net_us)), reached.net_us)


def gone_back(marks: Sequence[Mark], step: int, net_us: int) -> tuple[Mark, ...]:
    """The marks of a run that goes on from this step, where so much stood."""
    return (*(mark for mark in marks if mark.step < step), Mark(step, net_us))
