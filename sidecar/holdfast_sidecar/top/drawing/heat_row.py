"""A row of the heat map: a rank's columns, or a node's worst ones, in the room there is. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence, Set
from dataclasses import dataclass

from holdfast_sidecar.export.live.view import Heat
from holdfast_sidecar.top.drawing.figures import short_span
from holdfast_sidecar.top.drawing.line import Line, Look, Span, merged
from holdfast_sidecar.top.drawing.ramp import UNKNOWN_PHASE, cell
from holdfast_sidecar.top.drawing.signs import Signs
from holdfast_sidecar.top.drawing.standstill import standstill
from holdfast_sidecar.top.drawing.visible import padded

NOW = "now"


@dataclass(frozen=True)
class Timeline:
    """Which columns of the heat map share a column of the screen, oldest first."""

    heat: Heat
    columns: Sequence[range]
    stood: Set[int] = frozenset()
    """Columns in which the job took no step: what its ranks did says more than their last pace."""

    def row(self, ranks: Sequence[int], standing_for_all: int, signs: Signs) -> Line:
        """The slowest of these ranks in each column; where no step ended, what one of them does."""
        places = {self._place(rank) for rank in ranks}
        rows = [self.heat.rows[place] for place in places if place in self.heat.rows]
        phases = self.heat.phases.get(self._place(standing_for_all), [])
        return merged(
            cell(self._slowest(rows, column), self._phase(phases, column), signs)
            for column in self.columns
        )

    def title(self) -> Span:
        """From when to when, above the rows."""
        if not self.columns:
            return Span("")
        width = len(self.columns)
        seconds = self.heat.columns[-1] - self.heat.columns[self.columns[0].start]
        ago = f"-{short_span(seconds)}"
        is_room = width > len(ago) + len(NOW)
        return Span((padded(ago, width - len(NOW)) if is_room else "") + NOW, Look.HEADING)

    def _place(self, rank: int) -> int:
        return rank - rank % max(self.heat.ranks_per_row, 1)

    def _slowest(self, rows: Sequence[Sequence[float | None]], column: range) -> float | None:
        moving = [number for number in column if number not in self.stood]
        told = [row[number] for row in rows for number in moving if number < len(row)]
        return max((ratio for ratio in told if ratio is not None), default=None)

    def _phase(self, phases: Sequence[int | None], column: range) -> str:
        known = [phase for phase in phases[column.start : column.stop] if phase is not None]
        names = self.heat.phase_names
        if not known:
            return ""
        return names[known[-1]] if 0 <= known[-1] < len(names) else UNKNOWN_PHASE


def timeline(heat: Heat, room: int, step_s: float | None = None) -> Timeline:
    """The columns in so much room: several in one where they are more, at most as many as fit.

    What is put together is so by the clock, not by its place in the row: when a column comes, the
    picture moves on, and what is seen of the others does not change. step_s: what a step takes.
    """
    count = len(heat.columns)
    if room <= 0 or not count:
        return Timeline(heat, [])
    stood = standstill(heat, step_s)
    if count <= room:
        return Timeline(heat, [range(number, number + 1) for number in range(count)], stood)
    length_s = (heat.columns[-1] - heat.columns[0]) / (count - 1) * math.ceil(count / room)
    return Timeline(heat, _together(heat.columns, length_s)[-room:], stood)


def _together(ends: Sequence[float], length_s: float) -> list[range]:
    """Ranges of columns that end within the same so many seconds."""
    slots = [math.floor(end / length_s) if length_s > 0 else 0 for end in ends]
    begins = [
        number for number in range(len(ends)) if not number or slots[number] != slots[number - 1]
    ]
    return [range(*pair) for pair in zip(begins, [*begins[1:], len(ends)], strict=True)]
