"""A row of the heat map: a rank's columns, or a node's worst ones, in the room there is. Pure."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence, Set
from dataclasses import dataclass

from holdfast_sidecar.cli.tui.text import (
    HEAT,
    Line,
    Signs,
    Span,
    TextStyle,
    merged,
    padded,
    short_span,
)
from holdfast_sidecar.export.live.view import Heat

# How slow a cell of the heat map is: its level, the sign and the colour of each. Pure.
#
# Signs rise and colours lighten with the level, so either alone tells it, and so does the colour to
# those who see no red, no green or no blue.

STEPS = (1.05, 1.1, 1.2, 1.35, 1.5, 2.0, 3.0)
"""Own time against the median of the peers, from which on the next level begins. The first is where
a rank begins to be called slow (`straggler.least_slowdown`); a third more is what a throttled GPU
costs; from three times on, how much does not matter."""

COLOURS = (
    "#15598c",
    "#5f6c86",
    "#787f83",
    "#939278",
    "#b0a66c",
    "#cdbb5b",
    "#ebd24a",
    "#fff3b0",
)
"""One for each level, of cividis' kind (Nuñez et al. 2018): from blue to yellow through grey, with
a lightness that rises by the same amount at each. The darkest of all is left out, which is not seen
on a dark screen."""

LETTERS = {
    "starting": "S",
    "restoring": "R",
    "compiling": "C",
    "data": "D",
    "forward": "F",
    "backward": "B",
    "communicating": "W",
    "optimizer": "O",
    "saving": "V",
    "evaluating": "E",
    "idle": "I",
    "finished": "X",
    "transferring": "T",
    "gone": "G",
    "lost": "L",
}
"""What stands where no step ended: by it is seen who waits for others, and who is waited for."""

UNKNOWN_PHASE = "?"


def level(ratio: float) -> int:
    """0: no slower than its peers."""
    return bisect_right(STEPS, ratio)


def cell(ratio: float | None, phase: str, signs: Signs) -> Span:
    """One column of one row."""
    if ratio is not None:
        step = level(ratio)
        return Span(signs.heat[step], HEAT[step])
    if not phase:
        return Span(" ")
    return Span(LETTERS.get(phase, UNKNOWN_PHASE), TextStyle.DIM)


def legend(signs: Signs) -> list[Line]:
    """What each sign of the ramp means."""
    words = [f"under {STEPS[0]:g}x", *(f"{step:g}x" for step in STEPS)]
    return [
        (Span(sign, look), Span(f" {word}"))
        for sign, look, word in zip(signs.heat, HEAT, words, strict=True)
    ]


# When a job took no step though it should have. Pure.

STANDSTILL_STEPS = 3
"""A job that has taken no step for three of its steps stands, as `[stall]` has it."""

COLUMNS = 2
"""And for so many columns: in one that is shorter than a step none need end."""


def standstill(heat: Heat, step_s: float | None) -> frozenset[int]:
    """Columns within a stretch that long, from the first without a step on."""
    patience_s = STANDSTILL_STEPS * (step_s or 0.0)
    stood: set[int] = set()
    newest: int | None = None
    since = 0
    for number, step in enumerate(heat.steps[: len(heat.columns)]):
        if step is None or newest is None or step > newest or step < newest:
            newest, since = (newest if step is None else step), number
        elif number - since >= COLUMNS and heat.columns[number] - heat.columns[since] > patience_s:
            stood |= set(range(since + 1, number + 1))
    return frozenset(stood)


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
        return Span((padded(ago, width - len(NOW)) if is_room else "") + NOW, TextStyle.HEADING)

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
