"""The same steps of several ranks, side by side: the parts of the step, and its operators. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.page import TRACED_PARTS
from holdfast_sidecar.records.checkpoint import TracedRank

LEAST_US = 10.0
"""A smaller difference between two ranks is no news: the clock and the caches do as much."""

MOST_OPERATORS = 12

LEAST_SHARE = 0.5
"""Of the difference in a part, what an operator must take of it to be called its reason."""


@dataclass(frozen=True)
class Row:
    """What one thing took each of the ranks, microseconds of the mean step. None: not known."""

    name: str
    us: tuple[float | None, ...]

    @property
    def difference_us(self) -> float:
        """By how much the first rank took longer than the second; 0 where there is none."""
        if len(self.us) < 2 or self.us[0] is None or self.us[1] is None:
            return 0.0
        return self.us[0] - self.us[1]


def parts(traced: Sequence[TracedRank]) -> list[Row]:
    """Part by part, then the whole step; parts that no rank spent a moment in are left out."""
    known = {part for one in traced for part, us in one.parts_us.items() if us}
    # In the order of a step; others, of newer ranks, follow.
    ordered = [*(p for p in TRACED_PARTS if p in known), *sorted(known - {*TRACED_PARTS})]
    if not ordered:
        return []
    rows = [
        Row(part, tuple(one.parts_us.get(part, 0) if one.parts_us else None for one in traced))
        for part in ordered
    ]
    whole = tuple(sum(one.parts_us.values()) if one.parts_us else None for one in traced)
    return [*rows, Row("step", whole)]


def operators(traced: Sequence[TracedRank]) -> list[Row]:
    """Those whose time differs most between the first two, largest difference first.

    One that a rank does not tell is among its cheapest: it counts as none there.
    """
    tables = [{one.name: one.self_us for one in each.operators} for each in traced]
    names = {name for table in tables for name in table}
    rows = [
        Row(name, tuple(table.get(name, 0.0) if table else None for table in tables))
        for name in sorted(names)
    ]
    if len(traced) > 1:
        rows = [row for row in rows if abs(row.difference_us) >= LEAST_US]
        rows.sort(key=lambda row: -abs(row.difference_us))
    else:
        rows.sort(key=lambda row: -(row.us[0] or 0.0))
    return rows[:MOST_OPERATORS]


def verdict(traced: Sequence[TracedRank]) -> str:
    """In one sentence where the first rank's own time goes beyond the second's; empty: nowhere."""
    own = [row for row in parts(traced)[:-1] if row.name != "communicating"]
    worst = max(own, key=lambda row: row.difference_us, default=None)
    if worst is None or worst.difference_us < LEAST_US:
        return ""
    slow, peer = traced[0].rank, traced[1].rank
    said = f"rank {slow} takes {_ms(worst)} ms longer than rank {peer} in {worst.name}"
    rows = operators(traced)
    if not rows:
        return said
    dearest = max(rows, key=lambda row: row.difference_us)
    if dearest.difference_us < LEAST_SHARE * worst.difference_us:
        return f"{said}; no operator explains it: look at Python, sleep and input between them"
    return f"{said}; of all that it runs, most of it goes to: {dearest.name} (+{_ms(dearest)} ms)"


def _ms(row: Row) -> str:
    return f"{row.difference_us / 1e3:.1f}"
